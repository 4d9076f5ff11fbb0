#!/usr/bin/env python3
"""A model server that replays a script, to test agent clients offline.

Standard library only.  Binds to loopback only.  One process speaks all of:

  Anthropic Messages        POST /v1/messages            (stream and non-stream)
                            POST /v1/messages/count_tokens
  OpenAI Responses          POST [/v1]/responses         (stream and non-stream)
  OpenAI Chat Completions   POST [/v1]/chat/completions  (stream and non-stream)
  Gemini generateContent    POST /v1beta/models/M:generateContent, :streamGenerateContent, :countTokens
  Model lists               GET  [/v1]/models, /v1beta/models

It replays a SCRIPT (JSON):

  {"turns": [
     {"calls": [{"tool": "Bash", "input": {"command": "echo hi > out.txt"}}]},
     {"calls": [{"tool": "Write", "input": {"file_path": "@CWD@/w.txt", "content": "x"}}]},
     {"text": "all done"}]}

or, for several conversations at once (sub-agents, second sessions), chosen by a
regular expression searched in the text of the first user message:

  {"conversations": [
     {"match": "SUBTASK", "turns": [...]},
     {"match": "",        "turns": [...]}]}

The server is STATELESS: the turn served = the number of assistant turns already
in the request, so client retries are harmless.  Requests that offer no tools
(titles, summaries, quota probes) get a short text and are logged as "side".
After the last scripted turn the text "MOCK-DONE" is served.
A call may also have "raw": "text" instead of "input" for free-form (custom) tools.
A turn may have "delay": seconds, or "status": 529 + "error": "text".
"@CWD@" inside strings is replaced with --cwd.

Every request is appended to --log as one JSON line:
  {"n","t","method","path","kind","turn","conv","served","tools","results","headers","body"}
"results" are the tool results that the client sent in this request since the
last assistant turn: [{"id","name","error","text"}]: assert on these.

Usage:
  scripted_model.py --script s.json --log log.jsonl --port 0 --port-file port [--cwd DIR]
  scripted_model.py --show log.jsonl           # readable digest of a log
  scripted_model.py --results log.jsonl        # only tool results, one JSON per line
"""
import argparse, json, os, re, sys, threading, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

A = None          # parsed arguments
SCRIPT = None
LOCK = threading.Lock()
COUNT = 0


# ---------------------------------------------------------------- script ----
def load_script(path):
    with open(path) as f:
        s = json.load(f)
    return s["conversations"] if "conversations" in s else [dict(s, match="")]


def subst(v):
    if isinstance(v, str):
        return v.replace("@CWD@", A.cwd)
    if isinstance(v, list):
        return [subst(x) for x in v]
    if isinstance(v, dict):
        return {k: subst(x) for k, x in v.items()}
    return v


def pick(first_text, turn):
    """-> (conversation index, turn dict)"""
    for i, c in enumerate(load_script(A.script)):       # re-read: can be edited live
        if re.search(c.get("match", ""), first_text):
            turns = c["turns"]
            return i, subst(turns[turn]) if turn < len(turns) else {"text": "MOCK-DONE"}
    return -1, {"text": "MOCK-NO-CONVERSATION"}


# --------------------------------------------------- reading each protocol --
def flat(c):
    """text of any content shape"""
    if c is None:
        return ""
    if isinstance(c, str):
        return c
    if isinstance(c, list):
        return "\n".join(flat(x) for x in c)
    if isinstance(c, dict):
        for k in ("text", "content", "output", "response", "parts"):
            if k in c:
                return flat(c[k])
        return json.dumps(c)
    return str(c)


def read_anthropic(b):
    msgs = b.get("messages", [])
    turn = sum(1 for m in msgs if m["role"] == "assistant")
    first = next((flat(m["content"]) for m in msgs if m["role"] == "user"), "")
    names, results, tail = {}, [], []
    for m in msgs:
        if m["role"] == "assistant":
            tail = []
            for p in m["content"] if isinstance(m["content"], list) else []:
                if p.get("type") == "tool_use":
                    names[p["id"]] = p["name"]
        else:
            tail += m["content"] if isinstance(m["content"], list) else [{"type": "text", "text": m["content"]}]
    for p in tail:
        if p.get("type") == "tool_result":
            results.append({"id": p["tool_use_id"], "name": names.get(p["tool_use_id"]),
                            "error": bool(p.get("is_error")), "text": flat(p.get("content"))})
    extra = [p.get("text", "") for p in tail if p.get("type") == "text"] if turn else []
    return first, turn, results, [t.get("name", "?") for t in b.get("tools") or []], extra


def read_responses(b):
    inp = b.get("input", [])
    if isinstance(inp, str):
        inp = [{"type": "message", "role": "user", "content": inp}]
    turn, inmodel, names, results, users = 0, False, {}, [], []
    for it in inp:
        ty = it.get("type", "message")
        model = (ty == "message" and it.get("role") == "assistant") or ty == "reasoning" \
            or (ty.endswith("_call") and not ty.endswith("_output"))
        if model and not inmodel:
            turn += 1
            results = []
        inmodel = model
        if "call_id" in it and model:
            names[it["call_id"]] = it.get("name", ty)
        if ty.endswith("_output"):
            out = it.get("output")
            if isinstance(out, dict):
                out = out.get("content", json.dumps(out))
            results.append({"id": it.get("call_id"), "name": names.get(it.get("call_id")),
                            "error": None, "text": flat(out)})
        if ty == "message" and it.get("role") == "user":
            users.append(flat(it.get("content")))
    # newer Codex models get their tools inside the input: {"type":"additional_tools","tools":[...]}
    tools = list(b.get("tools") or [])
    for it in inp:
        if it.get("type") == "additional_tools":
            tools += it.get("tools") or []
    names = []
    for t in tools:
        n = t.get("name", t.get("type", "?"))
        names += [n + "." + x.get("name", "?") for x in t["tools"]] if t.get("type") == "namespace" else [n]
    return "\n".join(users), turn, results, names, []


def read_chat(b):
    msgs = b.get("messages", [])
    turn = sum(1 for m in msgs if m["role"] == "assistant")
    first = "\n".join(flat(m.get("content")) for m in msgs if m["role"] == "user")
    names, results = {}, []
    for m in msgs:
        if m["role"] == "assistant":
            results = []
            for c in m.get("tool_calls") or []:
                names[c["id"]] = (c.get("function") or c.get("custom") or {}).get("name", "?")
        elif m["role"] == "tool":
            results.append({"id": m.get("tool_call_id"), "name": names.get(m.get("tool_call_id")),
                            "error": None, "text": flat(m.get("content"))})
    return first, turn, results, [
        (t.get("function") or t.get("custom") or t).get("name", "?") for t in b.get("tools") or []], []


def read_gemini(b):
    msgs = b.get("contents", [])
    turn = sum(1 for m in msgs if m.get("role") == "model")
    # gemini-cli seeds the history with a fake model "Got it" turn in some versions
    first = "\n".join(flat([p for p in m.get("parts", []) if "text" in p]) for m in msgs if m.get("role") == "user")
    results = []
    for m in msgs:
        if m.get("role") == "model":
            results = []
        for p in m.get("parts", []):
            if "functionResponse" in p:
                fr = p["functionResponse"]
                r = fr.get("response", {})
                results.append({"id": fr.get("id"), "name": fr.get("name"), "error": "error" in r,
                                "text": flat(r.get("output", r.get("error", r)))})
    tools = [d["name"] for t in b.get("tools") or [] for d in t.get("functionDeclarations", [])]
    return first, turn, results, tools, []


# a side request may demand JSON (model routers, title makers): answer with a minimal valid instance
def fake(sch):
    if not isinstance(sch, dict):
        return None
    if "enum" in sch:
        return sch["enum"][0]
    for k in ("anyOf", "oneOf", "allOf"):
        if sch.get(k):
            return fake(sch[k][0])
    ty = sch.get("type", "string")
    ty = (ty[0] if isinstance(ty, list) else ty).lower()
    if ty == "object":
        pr = sch.get("properties", {})
        return {k: fake(pr.get(k, {})) for k in sch.get("required", list(pr))}
    return {"array": [], "integer": 1, "number": 1, "boolean": True, "null": None}.get(ty, "ok")


def wanted_schema(b):
    g = b.get("generationConfig") or b.get("config") or {}
    for c in (g.get("responseJsonSchema"), g.get("responseSchema"),
              ((b.get("response_format") or {}).get("json_schema") or {}).get("schema"),
              ((b.get("text") or {}).get("format") or {}).get("schema"),
              ((b.get("output_config") or {}).get("format") or {}).get("schema")):
        if c:
            return c


# ------------------------------------------------------ writing each protocol
def sse(ev, data):
    s = ("event: %s\n" % ev if ev else "") + "data: " + (data if isinstance(data, str) else json.dumps(data)) + "\n\n"
    return s.encode()


def args_of(c):
    return c["raw"] if "raw" in c else json.dumps(c.get("input", {}))


def out_anthropic(b, t, uid):
    calls, text = t.get("calls", []), t.get("text", "" if t.get("calls") else "ok")
    blocks = ([{"type": "text", "text": text}] if text else []) + [
        {"type": "tool_use", "id": "toolu_%s_%d" % (uid, i), "name": c["tool"], "input": c.get("input", {})}
        for i, c in enumerate(calls)]
    stop = "tool_use" if calls else "end_turn"
    usage = {"input_tokens": 10, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": 5}
    msg = {"id": "msg_" + uid, "type": "message", "role": "assistant", "model": b.get("model", "mock"),
           "content": blocks, "stop_reason": stop, "stop_sequence": None, "usage": usage}
    if not b.get("stream"):
        return "application/json", json.dumps(msg).encode()
    o = sse("message_start", {"type": "message_start",
                              "message": dict(msg, content=[], stop_reason=None)})
    for i, k in enumerate(blocks):
        if k["type"] == "text":
            o += sse("content_block_start", {"type": "content_block_start", "index": i, "content_block": {"type": "text", "text": ""}})
            o += sse("content_block_delta", {"type": "content_block_delta", "index": i, "delta": {"type": "text_delta", "text": k["text"]}})
        else:
            o += sse("content_block_start", {"type": "content_block_start", "index": i, "content_block": dict(k, input={})})
            o += sse("content_block_delta", {"type": "content_block_delta", "index": i,
                                             "delta": {"type": "input_json_delta", "partial_json": json.dumps(k["input"])}})
        o += sse("content_block_stop", {"type": "content_block_stop", "index": i})
    o += sse("message_delta", {"type": "message_delta", "delta": {"stop_reason": stop, "stop_sequence": None}, "usage": usage})
    o += sse("message_stop", {"type": "message_stop"})
    return "text/event-stream", o


def out_responses(b, t, uid):
    items = []
    text = t.get("text", "" if t.get("calls") else "ok")
    if text:
        items.append({"type": "message", "id": "msg_" + uid, "role": "assistant", "status": "completed",
                      "content": [{"type": "output_text", "text": text, "annotations": []}]})
    for i, c in enumerate(t.get("calls", [])):
        cid = "call_%s_%d" % (uid, i)
        if "raw" in c:
            it = {"type": "custom_tool_call", "id": "ctc_" + cid, "call_id": cid, "name": c["tool"],
                  "input": c["raw"], "status": "completed"}
        else:
            it = {"type": "function_call", "id": "fc_" + cid, "call_id": cid, "name": c["tool"],
                  "arguments": args_of(c), "status": "completed"}
        if "namespace" in c:
            it["namespace"] = c["namespace"]
        items.append(it)
    usage = {"input_tokens": 10, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 5,
             "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 15}
    resp = {"id": "resp_" + uid, "object": "response", "created_at": int(time.time()), "status": "completed",
            "model": b.get("model", "mock"), "output": items, "usage": usage, "error": None,
            "incomplete_details": None, "parallel_tool_calls": True, "tools": [], "metadata": {}}
    if not b.get("stream"):
        return "application/json", json.dumps(resp).encode()
    n = [0]

    def ev(ty, **kw):
        n[0] += 1
        return sse(ty, dict({"type": ty, "sequence_number": n[0]}, **kw))
    o = ev("response.created", response=dict(resp, status="in_progress", output=[], usage=None))
    for i, it in enumerate(items):
        if it["type"] == "message":
            o += ev("response.output_item.added", output_index=i, item=dict(it, status="in_progress", content=[]))
            o += ev("response.content_part.added", output_index=i, item_id=it["id"], content_index=0,
                    part={"type": "output_text", "text": "", "annotations": []})
            o += ev("response.output_text.delta", output_index=i, item_id=it["id"], content_index=0, delta=text)
            o += ev("response.output_text.done", output_index=i, item_id=it["id"], content_index=0, text=text)
            o += ev("response.content_part.done", output_index=i, item_id=it["id"], content_index=0, part=it["content"][0])
        elif it["type"] == "function_call":
            o += ev("response.output_item.added", output_index=i, item=dict(it, status="in_progress", arguments=""))
            o += ev("response.function_call_arguments.delta", output_index=i, item_id=it["id"], delta=it["arguments"])
            o += ev("response.function_call_arguments.done", output_index=i, item_id=it["id"], arguments=it["arguments"])
        else:
            o += ev("response.output_item.added", output_index=i, item=dict(it, status="in_progress", input=""))
            o += ev("response.custom_tool_call_input.delta", output_index=i, item_id=it["id"], delta=it["input"])
            o += ev("response.custom_tool_call_input.done", output_index=i, item_id=it["id"], input=it["input"])
        o += ev("response.output_item.done", output_index=i, item=it)
    o += ev("response.completed", response=resp)
    return "text/event-stream", o


def out_chat(b, t, uid):
    text = t.get("text", "" if t.get("calls") else "ok")
    tc = [{"index": i, "id": "call_%s_%d" % (uid, i), "type": "custom", "custom": {"name": c["tool"], "input": c["raw"]}}
          if "raw" in c else
          {"index": i, "id": "call_%s_%d" % (uid, i), "type": "function",
           "function": {"name": c["tool"], "arguments": args_of(c)}} for i, c in enumerate(t.get("calls", []))]
    fin = "tool_calls" if tc else "stop"
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    base = {"id": "chatcmpl-" + uid, "created": int(time.time()), "model": b.get("model", "mock")}
    if not b.get("stream"):
        m = {"role": "assistant", "content": text or None}
        if tc:
            m["tool_calls"] = [{k: v for k, v in c.items() if k != "index"} for c in tc]
        return "application/json", json.dumps(dict(base, object="chat.completion", usage=usage, choices=[
            {"index": 0, "message": m, "finish_reason": fin}])).encode()

    def ch(delta, f=None, **kw):
        return sse(None, dict(base, object="chat.completion.chunk",
                              choices=[{"index": 0, "delta": delta, "finish_reason": f}], **kw))
    o = ch({"role": "assistant", "content": text or ""})
    for c in tc:
        o += ch({"tool_calls": [c]})
    o += ch({}, fin)
    o += sse(None, dict(base, object="chat.completion.chunk", choices=[], usage=usage))
    return "text/event-stream", o + sse(None, "[DONE]")


def out_gemini(b, t, uid, stream):
    text = t.get("text", "" if t.get("calls") else "ok")
    parts = ([{"text": text}] if text else []) + [
        {"functionCall": {"id": "call_%s_%d" % (uid, i), "name": c["tool"], "args": c.get("input", {})}}
        for i, c in enumerate(t.get("calls", []))]
    r = {"candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": "STOP", "index": 0}],
         "usageMetadata": {"promptTokenCount": 10, "candidatesTokenCount": 5, "totalTokenCount": 15},
         "modelVersion": "mock", "responseId": uid}
    if stream:
        return "text/event-stream", sse(None, r)
    return "application/json", json.dumps(r).encode()


# ------------------------------------------------------------------- server -
class H(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *a):
        pass

    def reply(self, ctype, data, status=200):
        self.send_response(status)
        self.send_header("content-type", ctype)
        self.send_header("content-length", str(len(data)))
        self.send_header("request-id", "req_mock")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def record(self, **kw):
        with LOCK:
            with open(A.log, "a") as f:
                f.write(json.dumps(kw) + "\n")

    def handle_any(self):
        global COUNT
        with LOCK:
            COUNT += 1
            n = COUNT
        ln = int(self.headers.get("content-length") or 0)
        if self.headers.get("transfer-encoding", "").lower() == "chunked":
            raw = b""
            while True:
                size = int(self.rfile.readline().strip() or b"0", 16)
                if not size:
                    self.rfile.readline()
                    break
                raw += self.rfile.read(size)
                self.rfile.readline()
        else:
            raw = self.rfile.read(ln) if ln else b""
        enc = (self.headers.get("content-encoding") or "").lower()
        if enc == "gzip":
            import gzip
            raw = gzip.decompress(raw)
        try:
            b = json.loads(raw) if raw else {}
        except Exception:
            b = {"_unparsed": raw[:2000].decode("latin1")}
        path = self.path.split("?")[0].rstrip("/")
        hdr = {k.lower(): v for k, v in self.headers.items()}
        rec = dict(n=n, t=round(time.time() - A.t0, 3), method=self.command, path=self.path)
        uid = "%d" % n
        kind = None
        if self.command == "POST":
            if path.endswith("/messages"):
                kind = "anthropic"
            elif path.endswith("/responses"):
                kind = "responses"
            elif path.endswith("/chat/completions"):
                kind = "chat"
            elif re.search(r":(stream)?[gG]enerateContent$", path):
                kind = "gemini"
        if kind:
            # some gateways wrap the Gemini request
            bb = b.get("request", b) if kind == "gemini" else b
            first, turn, results, tools, extra = {"anthropic": read_anthropic, "responses": read_responses,
                                                  "chat": read_chat, "gemini": read_gemini}[kind](bb)
            if not tools and not A.serve_toolless:
                sch = wanted_schema(bb)
                conv, t = "side", {"text": json.dumps(fake(sch)) if sch else A.side_text}
            else:
                conv, t = pick(first, turn)
            if t.get("delay"):
                time.sleep(t["delay"])
            self.record(**rec, kind=kind, turn=turn, conv=conv, served=t, tools=tools, results=results,
                        extra=extra, headers=hdr, body=b)
            if "status" in t:
                return self.reply("application/json", json.dumps({"type": "error", "error": {
                    "type": "api_error", "message": t.get("error", "mock error")}}).encode(), t["status"])
            if kind == "gemini":
                ct, data = out_gemini(b, t, uid, "stream" in path.rsplit(":", 1)[1])
            else:
                ct, data = {"anthropic": out_anthropic, "responses": out_responses, "chat": out_chat}[kind](b, t, uid)
            return self.reply(ct, data)
        self.record(**rec, kind="other", headers=hdr, body=b)
        J = "application/json"
        if path.endswith("count_tokens"):
            return self.reply(J, b'{"input_tokens": 10}')
        if path.endswith(":countTokens"):
            return self.reply(J, b'{"totalTokens": 10}')
        if path.endswith("/models"):
            ms = [{"id": m, "object": "model", "type": "model", "display_name": m, "owned_by": "mock",
                   "created_at": "2025-01-01T00:00:00Z", "name": "models/" + m, "slug": m} for m in A.models.split(",")]
            if "v1beta" in path:
                return self.reply(J, json.dumps({"models": ms}).encode())
            return self.reply(J, json.dumps({"object": "list", "data": ms, "has_more": False,
                                             "first_id": ms[0]["id"], "last_id": ms[-1]["id"]}).encode())
        if A.static:                     # canned replies for a client's odd side endpoints
            for pat, body in json.load(open(A.static)).items():
                if re.search(pat, self.path):
                    st = body.pop("_status", 200) if isinstance(body, dict) else 200
                    return self.reply(J, json.dumps(body).encode(), st)
        return self.reply(J, b'{"type":"error","error":{"type":"not_found_error","message":"mock: no such route"}}', 404)

    do_GET = do_POST = do_HEAD = do_PUT = do_DELETE = do_OPTIONS = do_PATCH = handle_any


# -------------------------------------------------------------------- digest -
def show(path, only_results):
    for line in open(path):
        r = json.loads(line)
        if only_results:
            for x in r.get("results") or []:
                print(json.dumps(dict(x, turn=r["turn"], conv=r["conv"])))
            continue
        if r["kind"] == "other":
            print("#%d %s %s" % (r["n"], r["method"], r["path"]))
            continue
        print("#%d %s %s conv=%s turn=%s tools=%d" % (r["n"], r["method"], r["path"].split("?")[0], r["conv"], r["turn"], len(r["tools"])))
        for x in r["results"]:
            print("   <- result %s%s: %s" % (x["name"], " ERROR" if x["error"] else "", x["text"][:600].replace("\n", "\n      ")))
        for x in r.get("extra") or []:
            print("   <- extra text: %s" % x[:600].replace("\n", "\n      "))
        print("   -> served %s" % json.dumps(r["served"])[:400])


def main():
    global A
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--script")
    p.add_argument("--log", default="scripted_model.log.jsonl")
    p.add_argument("--port", type=int, default=0)
    p.add_argument("--port-file")
    p.add_argument("--cwd", default=os.getcwd())
    p.add_argument("--models", default="mock-model")
    p.add_argument("--side-text", default="ok")
    p.add_argument("--static", help="JSON file: {regex over path: reply body}")
    p.add_argument("--serve-toolless", action="store_true", help="serve scripted turns even to requests without tools")
    p.add_argument("--show")
    p.add_argument("--results")
    A = p.parse_args()
    if A.show or A.results:
        return show(A.show or A.results, bool(A.results))
    A.t0 = time.time()
    load_script(A.script)
    s = ThreadingHTTPServer(("127.0.0.1", A.port), H)
    s.daemon_threads = True
    if A.port_file:
        with open(A.port_file + ".tmp", "w") as f:
            f.write(str(s.server_address[1]))
        os.rename(A.port_file + ".tmp", A.port_file)
    else:
        print(s.server_address[1], flush=True)
    try:
        s.serve_forever()
    except KeyboardInterrupt:
        pass


if __name__ == "__main__":
    main()
