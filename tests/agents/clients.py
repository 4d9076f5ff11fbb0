#!/usr/bin/env python3
"""Runs a real agent client against scripted_model.py and shows how it treats its hooks.
Standard library only; everything on loopback.

  clients.py claude                run every scenario, compare with expected/claude.json
  clients.py claude rewrite hang   only these
  clients.py claude --record       write expected/claude.json from this run
  clients.py claude --product 'clash hook claude' --script my-script.json
                                   use this hook command instead of the test hook, replay
                                   a script, print the results that the model received
  clients.py --list                clients and scenarios
  clients.py --matrix              the recorded results as one table

Environment:
  CLASH_TEST_<CLIENT>              the client, for example CLASH_TEST_CLAUDE=/path/to/claude;
                                   without it, the program of that name on the search path
  CLASH_TEST_NODE                  a newer node for clients that need one
  CLASH_TEST_OPENCODE_MODULES      a directory with @opencode-ai/plugin installed
  CLASH_TEST_WORK                  where runs are kept; default: `work` beside this file
  CLASH_TEST_NETNS=0               use no private network namespace
A scenario has a home and a project of its own, and keys are the word "dummy".
"""
import argparse, ctypes, fcntl, hashlib, json, os, re, shlex, shutil, signal, socket, struct, subprocess, sys, time

KIT = os.path.dirname(os.path.abspath(__file__))
WORK = os.environ.get("CLASH_TEST_WORK", os.path.join(KIT, "work"))
HOOKS = os.path.join(KIT, "hooks")
SHIM = os.path.join(HOOKS, "shim.sh")
CMD = "echo RAN > ran.txt; echo u=$UNDER_SHIM"          # what the "model" asks for
q = shlex.quote


def wj(path, obj):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as f:
        f.write(obj if isinstance(obj, str) else json.dumps(obj, indent=1))


class Ctx:
    """one scenario run: directories, hook command, spec, base url"""
    hook = "test"            # "test" | "missing" | None | a literal product command
    project_disables = False
    second_hook = None       # output object of a second, slower hook
    native_deny = False
    mode = "yolo"

    def hook_cmd(self, event):
        if self.hook is None:
            return None
        if self.hook == "missing":
            return q(os.path.join(self.base, "no-such-hook"))
        if self.hook == "missing-guarded":
            return q(os.path.join(self.base, "no-such-hook")) + " || { echo hook-failed >&2; exit 2; }"
        if self.hook != "test":
            return self.hook
        return " ".join(map(q, [sys.executable, os.path.join(HOOKS, "testhook.py"), self.log, self.spec_file, event]))

    def second_cmd(self):
        return "sleep 1; echo " + q(json.dumps(self.second_hook))


# ------------------------------------------------------------------ adapters --
class Claude:
    """Anthropic Messages API.  Hooks: ~/.claude/settings.json (also project/.claude/settings.json,
    --settings JSON, plugins, /etc/claude-code/managed-settings.json)."""
    bin, event, shell_tool, style = "claude", "PreToolUse", "Bash", "claude"
    version_args = ["--version"]

    def deny(s, why): return {"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": "deny", "permissionDecisionReason": why}}
    def ask(s, why): return {"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": "ask", "permissionDecisionReason": why}}
    def hijack(s): return {"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": "allow", "updatedInput": {"command": "echo HIJACK"}}}
    def call(s, cmd): return {"tool": "Bash", "input": {"command": cmd, "description": "d"}}

    def setup(s, c):
        st = {}
        if c.hook_cmd(s.event):
            hs = [{"type": "command", "command": c.hook_cmd(s.event), "timeout": 4}]
            if c.second_hook:
                hs.append({"type": "command", "command": c.second_cmd(), "timeout": 10})
            if c.on_failure:
                hs[0]["onFailure"] = "block"
            st["hooks"] = {s.event: [{"matcher": "*", "hooks": hs}]}
        if c.native_deny:
            st["permissions"] = {"deny": ["Bash(echo:*)"]}
        wj(c.home + "/.claude/settings.json", st)
        if c.project_disables:
            wj(c.proj + "/.claude/settings.json", {"disableAllHooks": True})

    def env(s, c):
        return {"ANTHROPIC_BASE_URL": c.url, "ANTHROPIC_API_KEY": "dummy", "DISABLE_AUTOUPDATER": "1", "DISABLE_TELEMETRY": "1",
                "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "IS_SANDBOX": "1"}   # IS_SANDBOX: lets root skip permissions

    def argv(s, c):
        a = [c.bin, "-p", c.prompt, "--output-format", "stream-json", "--verbose"]
        return a + (["--dangerously-skip-permissions"] if c.mode == "yolo" else [])


class Codex(Claude):
    """OpenAI Responses API through [model_providers.mock].  Hooks: ~/.codex/hooks.json, and each hook
    must be TRUSTED: [hooks.state."<file>:<event>:<group>:<index>"] trusted_hash = sha256 of its
    canonical JSON in ~/.codex/config.toml (untrusted hooks are skipped silently by `codex exec`)."""
    bin, shell_tool = "codex", "exec_command"

    def call(s, cmd): return {"tool": "exec_command", "input": {"cmd": cmd}}

    @staticmethod
    def trusted_hash(event_label, handler, matcher=None):
        ident = {"event_name": event_label, "hooks": [dict({"type": "command", "async": False, "timeout": 600}, **handler)]}
        if matcher is not None:
            ident["matcher"] = matcher
        return "sha256:" + hashlib.sha256(json.dumps(ident, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()).hexdigest()

    def setup(s, c):
        toml = ('model = "mock-model"\nmodel_provider = "mock"\ncheck_for_update_on_startup = false\n[analytics]\nenabled = false\n'
                '[model_providers.mock]\nname = "mock"\nbase_url = "%s/v1"\nenv_key = "MOCK_KEY"\nwire_api = "responses"\n' % c.url)
        if c.hook_cmd(s.event):
            hs = [{"type": "command", "command": c.hook_cmd(s.event), "timeout": 4}]
            if c.second_hook:
                hs.append({"type": "command", "command": c.second_cmd(), "timeout": 10})
            f = c.home + "/.codex/hooks.json"
            wj(f, {"hooks": {s.event: [{"hooks": hs}]}})
            for i, h in enumerate(hs):
                toml += '[hooks.state."%s:pre_tool_use:0:%d"]\ntrusted_hash = "%s"\n' % (f, i, s.trusted_hash("pre_tool_use", h))
        wj(c.home + "/.codex/config.toml", toml)
        if c.project_disables:
            wj(c.proj + "/.codex/config.toml", "[features]\nhooks = false\n")

    def env(s, c): return {"MOCK_KEY": "dummy"}
    def argv(s, c): return [c.bin, "exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "--json", c.prompt]


class Gemini(Claude):
    """Gemini generateContent API.  Hooks: ~/.gemini/settings.json "hooks" (timeout in MILLISECONDS)."""
    bin, event, shell_tool, style, dot = "gemini", "BeforeTool", "run_shell_command", "gemini", ".gemini"

    def deny(s, why): return {"decision": "deny", "reason": why}
    def ask(s, why): return {"decision": "ask", "reason": why}
    def hijack(s): return {"hookSpecificOutput": {"hookEventName": "BeforeTool", "tool_input": {"command": "echo HIJACK"}}}
    def call(s, cmd): return {"tool": "run_shell_command", "input": {"command": cmd, "description": "d"}}
    timeout, auth, disable = 4000, "gemini-api-key", {"hooksConfig": {"enabled": False}}

    def setup(s, c):
        st = {"security": {"auth": {"selectedType": s.auth}, "folderTrust": {"enabled": False}}, "telemetry": {"enabled": False},
              "general": {"enableAutoUpdate": False, "disableAutoUpdate": True}, "privacy": {"usageStatisticsEnabled": False}}
        if c.hook_cmd(s.event):
            hs = [{"type": "command", "name": "kit", "command": c.hook_cmd(s.event), "timeout": s.timeout}]
            if c.second_hook:
                hs.append({"type": "command", "name": "other", "command": c.second_cmd()})
            st["hooks"] = {s.event: [{"hooks": hs}]}
        wj(c.home + "/" + s.dot + "/settings.json", st)
        if c.project_disables:
            wj(c.proj + "/" + s.dot + "/settings.json", s.disable)

    def env(s, c): return {"GEMINI_API_KEY": "dummy", "GOOGLE_GEMINI_BASE_URL": c.url}
    def argv(s, c): return [c.bin, "-p", c.prompt, "-m", "gemini-2.5-pro", "--approval-mode", "yolo", "--output-format", "stream-json"]


class Qwen(Gemini):
    """OpenAI chat API.  Hooks: ~/.qwen/settings.json, Claude-like names.  NOTE: updatedInput is documented
    but ignored (0.24.4), so the rewrite scenario is expected to run UNWRAPPED."""
    bin, event, style, dot, timeout, auth = "qwen", "PreToolUse", "claude", ".qwen", 4, "openai"
    disable = {"disableAllHooks": True}
    deny, ask, hijack = Claude.deny, Claude.ask, Claude.hijack

    def call(s, cmd): return {"tool": "run_shell_command", "input": {"command": cmd, "description": "d", "is_background": False}}
    def env(s, c): return {"OPENAI_API_KEY": "dummy", "OPENAI_BASE_URL": c.url + "/v1", "OPENAI_MODEL": "mock-model"}
    def argv(s, c): return [c.bin, c.prompt, "--auth-type", "openai", "--approval-mode", "yolo", "--output-format", "stream-json"]


class Copilot(Claude):
    """OpenAI chat API through COPILOT_PROVIDER_* (no GitHub login).  Hooks: ~/.copilot/hooks/*.json, camelCase
    event names get Copilot's own JSON; PascalCase names (PreToolUse) get a Claude-like JSON."""
    bin, event, shell_tool, style = "copilot", "preToolUse", "bash", "copilot"

    def deny(s, why): return {"permissionDecision": "deny", "permissionDecisionReason": why}
    def ask(s, why): return {"permissionDecision": "ask", "permissionDecisionReason": why}
    def hijack(s): return {"modifiedArgs": {"command": "echo HIJACK", "description": "d"}}
    def call(s, cmd): return {"tool": "bash", "input": {"command": cmd, "description": "d"}}

    def setup(s, c):
        if c.hook_cmd(s.event):
            hs = [{"type": "command", "bash": c.hook_cmd(s.event), "timeoutSec": 4}]
            if c.second_hook:
                hs.append({"type": "command", "bash": c.second_cmd(), "timeoutSec": 10})
            wj(c.home + "/.copilot/hooks/kit.json", {"version": 1, "hooks": {s.event: hs}})
        if c.project_disables:
            wj(c.proj + "/.github/copilot/settings.json", {"disableAllHooks": True})

    def env(s, c):
        return {"COPILOT_PROVIDER_BASE_URL": c.url + "/v1", "COPILOT_PROVIDER_API_KEY": "dummy", "COPILOT_MODEL": "gpt-5.5",
                "COPILOT_PROVIDER_WIRE_API": "completions", "COPILOT_OFFLINE": "true", "COPILOT_AUTO_UPDATE": "false"}

    def argv(s, c):
        a = [c.bin, "-p", c.prompt, "--no-color", "--output-format", "json", "--allow-all"]
        if c.project_disables:
            a.append("--trust-folder")
        return a + (["--deny-tool", "shell(echo)"] if c.native_deny else [])


class Droid(Claude):
    """OpenAI chat API as a custom model.  Hooks: ~/.factory/settings.json, Claude-like."""
    bin, shell_tool = "droid", "Execute"

    def call(s, cmd): return {"tool": "Execute", "input": {"command": cmd, "riskLevelReason": "test", "riskLevel": "low"}}
    def hijack(s): return {"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": "allow", "updatedInput": {"command": "echo HIJACK", "riskLevelReason": "x", "riskLevel": "low"}}}

    def setup(s, c):
        st = {"customModels": [{"displayName": "Mock", "model": "mock-model", "baseUrl": c.url + "/v1", "apiKey": "dummy",
                                "provider": "generic-chat-completion-api", "maxOutputTokens": 4000}]}
        if c.hook_cmd(s.event):
            hs = [{"type": "command", "command": c.hook_cmd(s.event), "timeout": 4}]
            if c.second_hook:
                hs.append({"type": "command", "command": c.second_cmd(), "timeout": 10})
            st["hooks"] = {s.event: [{"matcher": "*", "hooks": hs}]}
        wj(c.home + "/.factory/settings.json", st)
        if c.project_disables:
            wj(c.proj + "/.factory/settings.json", {"hooksDisabled": True, "disableAllHooks": True})

    def env(s, c): return {"FACTORY_API_KEY": "dummy", "DROID_DISABLE_AUTO_UPDATE": "1"}
    def argv(s, c): return [c.bin, "exec", "--auto", "high", "-m", "custom:mock-model", c.prompt]


class Cline(Claude):
    """OpenAI chat API (`cline auth -p openai -b URL`).  Hooks: executable files ~/.cline/hooks/PreToolUse etc.
    Only JSON decides; exit codes do not.  Leaves a background hub daemon, which reap() ends."""
    bin, style, shell_tool = "cline", "cline", "run_commands"

    def deny(s, why): return {"cancel": True, "errorMessage": why}
    def ask(s, why): return {"review": True, "errorMessage": why}
    def call(s, cmd): return {"tool": "run_commands", "input": {"commands": [cmd]}}
    hijack = None

    def setup(s, c):
        if c.hook_cmd(s.event):
            f = c.home + "/.cline/hooks/PreToolUse"
            wj(f, "#!/bin/sh\n" + c.hook_cmd(s.event) + "\n")
            os.chmod(f, 0o755)

    def env(s, c): return {"DO_NOT_TRACK": "1"}

    def argv(s, c):
        return ["bash", "-c", "%s auth -p openai -k dummy -m mock-model -b %s/v1 </dev/null >/dev/null 2>&1; exec %s --json %s </dev/null" % (
            q(c.bin), c.url, q(c.bin), q(c.prompt))]


class Opencode(Claude):
    """OpenAI chat API provider in opencode.json.  Hooks: a JS plugin in ~/.config/opencode/plugins/.
    opencode installs @opencode-ai/plugin next to it on first use. Offline it waits about 80 s, so the
    modules of CLASH_TEST_OPENCODE_MODULES are copied there first."""
    bin, event, shell_tool, plugin = "opencode", "tool.execute.before", "bash", True
    confdir, conffile, plugdir, prefix = ".config/opencode", "opencode.json", "plugins", "OPENCODE"
    hijack = ask = None

    def deny(s, why): return {"throw": why}
    def call(s, cmd): return {"tool": "bash", "input": {"command": cmd, "description": "d"}}

    def setup(s, c):
        d = os.path.join(c.home, s.confdir)
        cfg = {"autoupdate": False, "share": "disabled", "model": "mock/mock-model", "small_model": "mock/mock-model",
               "provider": {"mock": {"npm": "@ai-sdk/openai-compatible", "name": "Mock", "options": {"baseURL": c.url + "/v1", "apiKey": "dummy"},
                                     "models": {"mock-model": {"name": "Mock", "tool_call": True, "limit": {"context": 200000, "output": 8000}}}}}}
        if c.native_deny:
            cfg["permission"] = {"bash": {"*": "allow", "echo *": "deny"}}
        wj(d + "/" + s.conffile, cfg)
        if c.hook:
            src = open(os.path.join(HOOKS, "opencode-plugin.js")).read()
            wj(d + "/" + s.plugdir + "/kit.js", "this is not ( javascript" if c.hook == "missing" else src)
            pre = os.environ.get("CLASH_TEST_OPENCODE_MODULES", "")
            if pre and os.path.isdir(pre + "/node_modules") and s.bin == "opencode":
                shutil.copytree(pre + "/node_modules", d + "/node_modules", symlinks=True)
                for f in ("package.json", "package-lock.json"):
                    shutil.copy(pre + "/" + f, d)

    def env(s, c):
        return {s.prefix + "_DISABLE_AUTOUPDATE": "1", s.prefix + "_DISABLE_MODELS_FETCH": "1", s.prefix + "_DISABLE_LSP_DOWNLOAD": "1",
                "KIT_HOOK_LOG": c.log, "KIT_HOOK_SPEC": c.spec_file}

    def argv(s, c): return [c.bin, "run", "--format", "json", c.prompt]


class Kilo(Opencode):
    """opencode fork: same plugin interface under ~/.config/kilo."""
    bin, confdir, conffile, plugdir, prefix = "kilo", ".config/kilo", "kilo.json", "plugin", "KILO"

    def argv(s, c): return [c.bin, "run", "--format", "json", "--auto", c.prompt]


class Pi(Opencode):
    """OpenAI chat API provider in ~/.pi/agent/models.json.  Hooks: a TypeScript extension."""
    bin, event = "pi", "tool_call"

    def deny(s, why): return {"block": why}
    def call(s, cmd): return {"tool": "bash", "input": {"command": cmd}}

    def setup(s, c):
        d = c.home + "/.pi/agent"
        wj(d + "/models.json", {"providers": {"mock": {"baseUrl": c.url + "/v1", "api": "openai-completions", "apiKey": "dummy", "models": [
            {"id": "mock-model", "contextWindow": 128000, "maxTokens": 8000, "compat": {"supportsDeveloperRole": False}}]}}})
        if c.hook:
            src = open(os.path.join(HOOKS, "pi-extension.ts")).read()
            wj(d + "/extensions/kit.ts", "this is not ( typescript" if c.hook == "missing" else src)

    def env(s, c): return {"PI_OFFLINE": "1", "KIT_HOOK_LOG": c.log, "KIT_HOOK_SPEC": c.spec_file}
    def argv(s, c): return [c.bin, "-p", "--mode", "json", "--provider", "mock", "--model", "mock-model", c.prompt]


CLIENTS = {k: v() for k, v in dict(claude=Claude, codex=Codex, gemini=Gemini, opencode=Opencode, copilot=Copilot, qwen=Qwen,
                                   droid=Droid, cline=Cline, pi=Pi, kilo=Kilo).items()}


# ----------------------------------------------------------------- scenarios --
def scenarios(a):
    """name -> (what it asks, dict of Ctx fields, spec for the hook)"""
    js = a.deny("KIT-DENY")
    plug = getattr(a, "plugin", False)
    S = {}
    S["baseline"] = ("no hook at all: the command runs", dict(hook=None), {})
    S["silent"] = ("hook exits 0 and says nothing", {}, {})
    S["deny"] = ("hook denies in the client's own words", {}, js if plug else {"stdout": js})
    S["rewrite"] = ("hook wraps the command in the shim: does the shim really run?", {}, {"rewrite": SHIM, "style": a.style})
    S["hang"] = ("hook sleeps past its timeout", {}, {"sleep": 8})
    S["missing"] = ("hook program does not exist (plugin: does not parse)", dict(hook="missing"), {})
    if plug:
        S["throw"] = ("hook throws", {}, {"throw": "KIT-THROW"})
        S["init-throw"] = ("plugin fails while loading", {}, {"_init": {"throw": "KIT-INIT"}})
    else:
        S["exit1"] = ("hook exits 1 with stderr", {}, {"exit": 1, "stderr": "E1"})
        S["exit2"] = ("hook exits 2 with stderr", {}, {"exit": 2, "stderr": "KIT-E2"})
        S["exit2-quiet"] = ("hook exits 2 and says nothing", {}, {"exit": 2})
        S["exit1-deny"] = ("hook prints a deny but exits 1", {}, {"exit": 1, "stdout": js})
        S["sigkill"] = ("hook is killed", {}, {"kill": 9})
        S["junk"] = ("hook prints text that is not JSON", {}, {"stdout": "hello"})
        S["debug-then-deny"] = ("a debug line, then a deny", {}, {"stdout": "debug\n" + json.dumps(js)})
        S["deny-then-debug"] = ("a deny, then a debug line", {}, {"stdout": json.dumps(js) + "\ndebug"})
        S["deny-extra-field"] = ("a deny with an unknown extra field", {}, {"stdout": dict(js, unknown_field=1)})
        S["claude-deny"] = ("a deny in Claude's words", {}, {"stdout": Claude.deny(a, "KIT-DENY")})
        S["continue-false"] = ('{"continue": false}', {}, {"stdout": {"continue": False, "stopReason": "KIT-STOP"}})
        S["missing-guarded"] = ("missing program, guarded by `|| { echo >&2; exit 2; }`", dict(hook="missing-guarded"), {})
        if a.ask:
            S["ask"] = ("hook asks; nobody can answer (headless)", {}, {"stdout": a.ask("KIT-ASK")})
        if a.hijack:
            S["two-rewriters"] = ("a second, slower hook rewrites too: who wins?", dict(second_hook=a.hijack()), {"rewrite": SHIM, "style": a.style})
    if a.bin == "claude":
        for n in ("exit1", "sigkill", "hang", "junk"):
            S["onFailure-" + n] = ('same as %s, with "onFailure": "block"' % n, dict(on_failure=True), S[n][2])
        S["onFailure-missing"] = ('missing program, with "onFailure": "block"', dict(on_failure=True, hook="missing"), {})
    if a.bin in ("claude", "opencode", "copilot"):
        S["native-deny"] = ("the client's own deny rule for `echo`, no rewriting", dict(native_deny=True, mode="ask"), {})
        S["native-deny+rewrite"] = ("the same rule when the hook wraps the command: still enforced?", dict(native_deny=True, mode="ask"), {"rewrite": SHIM, "style": a.style})
    if not plug and a.bin != "cline":
        S["project-disables"] = ("a file in the PROJECT switches the user's hooks off", dict(project_disables=True), {"exit": 2, "stderr": "KIT-E2"})
    return S


# -------------------------------------------------------------------- running --
def lo_up():
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    ifr = struct.pack("16sh14x", b"lo", 0)
    flags = struct.unpack("16sh14x", fcntl.ioctl(s, 0x8913, ifr))[1]
    fcntl.ioctl(s, 0x8914, struct.pack("16sh14x", b"lo", flags | 1))


def enter_netns():
    """A network namespace with only loopback, where root can make one: the client reaches no server."""
    if os.environ.get("CLASH_TEST_NETNS", "1") == "0" or sys.platform != "linux" or os.geteuid() != 0:
        return "no (not root or switched off)"
    if ctypes.CDLL(None, use_errno=True).unshare(0x40000000) != 0:
        return "no (unshare refused)"
    lo_up()
    return "yes"


def find_bin(name):
    variable = "CLASH_TEST_" + name.upper()
    for p in (os.environ.get(variable), shutil.which(CLIENTS[name].bin)):
        if p and os.path.exists(p):
            return os.path.abspath(p)
    sys.exit("no %s found: install it, or set %s" % (name, variable))


def base_env(c):
    keep = {k: os.environ[k] for k in ("PATH", "LANG", "TMPDIR") if k in os.environ}
    node = os.environ.get("CLASH_TEST_NODE")
    if node:
        keep["PATH"] = os.path.dirname(node) + ":" + keep["PATH"]
    return dict(keep, HOME=c.home, TERM="dumb", SHIM_LOG=c.shim_log, **CLIENTS[c.client].env(c))


def reap(home):
    """end daemons a client left behind (codex app-server, cline hub): only processes whose HOME is this run's"""
    want = ("HOME=" + home).encode()
    for _ in range(3):
        found = False
        for pid in filter(str.isdigit, os.listdir("/proc") if os.path.isdir("/proc") else []):
            try:
                if want in open("/proc/%s/environ" % pid, "rb").read().split(b"\0"):
                    os.kill(int(pid), signal.SIGTERM)
                    found = True
            except OSError:
                pass
        if not found:
            return
        time.sleep(0.5)


def run_one(client, name, fields, spec, script=None, timeout=120, product=None):
    a = CLIENTS[client]
    c = Ctx()
    c.client, c.bin, c.prompt, c.on_failure = client, find_bin(client), "do it", False
    for k, v in fields.items():
        setattr(c, k, v)
    if product:
        c.hook = product
    c.base = os.path.join(WORK, client, re.sub(r"[^a-zA-Z0-9_.-]", "_", name))
    shutil.rmtree(c.base, ignore_errors=True)
    c.home, c.proj = c.base + "/home", c.base + "/proj"
    c.log, c.spec_file, c.shim_log, llm = c.base + "/hook.jsonl", c.base + "/spec.json", c.base + "/shim.log", c.base + "/llm.jsonl"
    os.makedirs(c.home)
    os.makedirs(c.proj)
    wj(c.spec_file, {a.event: {k: v for k, v in spec.items() if k != "_init"}, "init": spec.get("_init", {})})
    wj(c.base + "/script.json", script or {"turns": [{"calls": [a.call(CMD)]}, {"text": "KIT-FINAL"}]})
    mock = subprocess.Popen([sys.executable, os.path.join(KIT, "scripted_model.py"), "--script", c.base + "/script.json", "--log", llm,
                             "--port-file", c.base + "/port", "--cwd", c.proj], stderr=open(c.base + "/mock.err", "w"))
    try:
        for _ in range(200):
            if os.path.exists(c.base + "/port"):
                break
            time.sleep(0.05)
        c.url = "http://127.0.0.1:" + open(c.base + "/port").read()
        a.setup(c)
        t = time.time()
        p = subprocess.Popen(a.argv(c), cwd=c.proj, env=base_env(c), stdin=subprocess.DEVNULL, stdout=open(c.base + "/out", "w"),
                             stderr=open(c.base + "/err", "w"), start_new_session=True)
        try:
            rc = p.wait(timeout)
        except subprocess.TimeoutExpired:
            os.killpg(p.pid, signal.SIGKILL)
            p.wait()
            rc = "timeout"
        secs = time.time() - t
    finally:
        reap(c.home)
        mock.terminate()
        mock.wait()
    rd = lambda f: [json.loads(x) for x in open(f)] if os.path.exists(f) else []
    reqs, hooks = rd(llm), rd(c.log)
    res = [x["text"] for r in reqs for x in (r.get("results") or [])]
    shim = open(c.shim_log).read().count("SHIM ") if os.path.exists(c.shim_log) else 0
    return dict(rc=rc, secs=round(secs, 1), ran=os.path.exists(c.proj + "/ran.txt"), shim=shim, hooks=len(hooks),
                result=scrub(res[0], c) if res else None, _hooks=hooks, _reqs=reqs, _base=c.base)


def scrub(text, c):
    """no machine-specific paths in recorded expectations"""
    for a, b in ((c.base, "@RUN"), (KIT, "@KIT"), (sys.executable, "python3")):
        text = text.replace(a, b)
    return re.sub(r"PGID: \d+|Chunk ID: \w+|Wall time: [0-9.]+", lambda m: m.group().split(":")[0] + ": N", text)[:300]


def verdict(r):
    """one word for a table: what happened to the command"""
    if r["shim"]:
        return "WRAPPED"
    if r["ran"]:
        return "RAN"
    if r["result"] and "HIJACK" in r["result"]:
        return "HIJACKED"
    return "HUNG" if r["rc"] == "timeout" else "BLOCKED"


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("client", nargs="?", choices=sorted(CLIENTS))
    p.add_argument("scenario", nargs="*")
    p.add_argument("--record", action="store_true")
    p.add_argument("--list", action="store_true")
    p.add_argument("--matrix", action="store_true", help="print expected/*.json as one Markdown table")
    p.add_argument("--product", metavar="CMD")
    p.add_argument("--script", metavar="FILE")
    p.add_argument("--timeout", type=int, default=60)
    o = p.parse_args()
    if o.matrix:
        E = {n: json.load(open(os.path.join(KIT, "expected", n + ".json"))) for n in CLIENTS if os.path.exists(os.path.join(KIT, "expected", n + ".json"))}
        names = list(dict.fromkeys(x for e in E.values() for x in e["scenarios"]))
        print("| scenario | " + " | ".join("%s %s" % (n, (re.findall(r"\d+\.\d+[.\d]*", e["version"]) or ["?"])[0].rstrip(".")) for n, e in E.items()) + " |")
        print("|---" * (len(E) + 1) + "|")
        for x in names:
            print("| %s | " % x + " | ".join(e["scenarios"].get(x, {}).get("verdict", "-") for e in E.values()) + " |")
        return
    if o.list or not o.client:
        for n, a in sorted(CLIENTS.items()):
            print(n, "-", " ".join((a.__doc__ or "").split()))
            print("   ", " ".join(scenarios(a)))
        return
    a, exp_file = CLIENTS[o.client], os.path.join(KIT, "expected", o.client + ".json")
    ver = subprocess.run([find_bin(o.client), "--version"], capture_output=True, text=True, stdin=subprocess.DEVNULL,
                         env=dict(os.environ, HOME=os.path.join(WORK, "version-home")))
    ver = next((x.strip() for x in (ver.stdout + ver.stderr).splitlines() if re.search(r"\d+\.\d+", x)), "?")
    print("client %s (%s), private network namespace: %s" % (o.client, ver, enter_netns()), flush=True)
    if o.product:
        sc = json.load(open(o.script)) if o.script else None
        r = run_one(o.client, "product", {}, {}, script=sc, timeout=o.timeout, product=o.product)
        print("exit %s after %ss, logs in %s" % (r["rc"], r["secs"], r["_base"]))
        for q_ in r["_reqs"]:
            for x in q_.get("results") or []:
                print("tool result sent to the model: %s%s: %s" % (x["name"], " (error)" if x["error"] else "", x["text"]))
        return
    S = scenarios(a)
    old = json.load(open(exp_file)) if os.path.exists(exp_file) else {"scenarios": {}}
    new, changed = {}, 0
    for n in o.scenario or S:
        what, fields, spec = S[n]
        r = run_one(o.client, n, fields, spec, timeout=o.timeout)
        v, e = verdict(r), old["scenarios"].get(n, {}).get("verdict")
        new[n] = {"what": what, "verdict": v, "hook_calls": r["hooks"], "model_sees": r["result"]}
        mark = "new" if e is None else "same" if e == v else "CHANGED (was %s)" % e
        changed += mark.startswith("CHANGED")
        print("%-20s %-9s %-22s %5.1fs hooks=%d  %s" % (n, v, mark, r["secs"], r["hooks"], (r["result"] or "").replace("\n", " ")[:90]), flush=True)
    if o.record:
        old["scenarios"].update(new)
        wj(exp_file, {"client": o.client, "version": ver, "scenarios": old["scenarios"]})
        print("recorded", os.path.relpath(exp_file, KIT))
    sys.exit(1 if changed and not o.record else 0)


if __name__ == "__main__":
    main()
