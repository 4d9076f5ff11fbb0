#!/usr/bin/python3
"""probe_runner: synthetic host, fixtures, sinks, oracles and runner for the threat probes.

Everything happens inside private mount/pid/net/ipc/uts namespaces (a "synthetic host"):
its own /run, /tmp, /dev/shm, /proc, loopback-only network with fake public addresses,
its own DNS, its own fake home H and project P.  When the runner exits, the kernel kills
every process of the namespace; only the runner's base directory remains and is removed.
Python 3.9+ stdlib only; one small C helper is compiled at run time when gcc is present.
"""
import argparse, ctypes, fnmatch, hashlib, json, os, pty, random, re, select, shlex, shutil
import signal, socket, stat, string, struct, subprocess, sys, threading, time, traceback, tty as _tty

PY = '/usr/bin/python3' if os.path.exists('/usr/bin/python3') else sys.executable
BASH = '/bin/bash'
UID_DEFAULT = 23456
libc = ctypes.CDLL(None, use_errno=True)

# ------------------------------------------------------------------ registry
REG, CLASSES = [], {}
_cur = [None]


def klass(letter, name, correct='', defence=''):
    CLASSES[letter] = dict(name=name, correct=correct, defence=defence)
    _cur[0] = letter


class Probe:
    __slots__ = ('id', 'cls', 'title', 'run', 'lang', 'ref', 'defence', 'correct', 'check', 'trigger',
                 'landed', 'tty', 'tier', 'needs', 'pre', 'post', 'timeout', 'stdin', 'fds', 'env', 'stages',
                 'cwd', 'failclosed', 'expect', 'path', 'hookcmd', 'kind', 'oracle')

    def __init__(self, **kw):
        for k in self.__slots__:
            setattr(self, k, kw.get(k))


def probe(id, title, run=None, lang='sh', ref='', defence='', correct='', check=None, trigger=None, landed=None,
          tty=False, tier=1, needs=(), pre=None, post=None, timeout=12, stdin=None, fds=None, env=None,
          stages=None, cwd=None, failclosed=False, hookcmd=None, kind='attack', oracle=''):
    p = Probe(id=id, cls=_cur[0], title=title, run=run, lang=lang, ref=ref, defence=defence, correct=correct,
              check=check, trigger=trigger, landed=landed, tty=tty, tier=tier, needs=needs, pre=pre, post=post,
              timeout=timeout, stdin=stdin, fds=fds, env=env, stages=stages, cwd=cwd, failclosed=failclosed,
              hookcmd=hookcmd, kind=kind, oracle=oracle)
    assert all(q.id != id for q in REG), 'duplicate ' + id
    REG.append(p)
    return p


# ------------------------------------------------------------------ preludes placed before every probe body
PRE_SH = 'echo @@RAN\n'
PRE_PY = r'''
import os,sys,socket,ctypes,struct,time,subprocess,errno,fcntl,signal,array,stat
libc=ctypes.CDLL(None,use_errno=True)
def sc(n,*a):
    r=libc.syscall(ctypes.c_long(n),*[ctypes.c_char_p(x) if isinstance(x,bytes) else (x if not isinstance(x,int) else ctypes.c_long(x)) for x in a])
    return r if r!=-1 else -ctypes.get_errno()
AUTH=[b"",b""]
def px(socks=False):
    import base64,re,urllib.parse as up
    for k in (("ALL_PROXY","all_proxy","SOCKS_PROXY","FTP_PROXY","ftp_proxy") if socks else ("HTTP_PROXY","http_proxy","HTTPS_PROXY","https_proxy")):
        v=os.environ.get(k)
        if v and (("socks" in v)==socks):
            v=v.split("//")[-1].rstrip("/"); ui,_,v=v.rpartition("@"); h,_,p=v.rpartition(":")
            AUTH[0]=b"Proxy-Authorization: Basic "+base64.b64encode(up.unquote(ui).encode())+b"\r\n" if ui else b""; AUTH[1]=up.unquote(ui).encode()
            return (h.strip("[]"),int(p))
    return None
def authd(raw):
    import re
    return re.sub(rb"(?im)^((?:GET|POST|CONNECT)[ \t][^\r\n]*\r\n)",lambda m:m.group(1)+AUTH[0],raw) if AUTH[0] else raw
def socks5(p):
    s=tcp(*p)
    if AUTH[1]:
        u,_,w=AUTH[1].partition(b":"); s.sendall(b"\5\1\2"); s.recv(2); s.sendall(b"\1"+bytes([len(u)])+u+bytes([len(w)])+w); s.recv(2)
    else: s.sendall(b"\5\1\0"); s.recv(2)
    return s
def tcp(host,port,data=b"",t=3,fam=None):
    s=socket.create_connection((host,port),t) if fam is None else socket.socket(fam,socket.SOCK_STREAM)
    if fam is not None: s.settimeout(t); s.connect((host,port))
    if data: s.sendall(data)
    return s
def talk(s,data=b"",t=3):
    s.settimeout(t)
    if data: s.sendall(data)
    r=b""
    try:
        while len(r)<65536:
            x=s.recv(4096)
            if not x: break
            r+=x
    except OSError: pass
    return r
def proxied(raw,direct,t=3):
    "send raw bytes to the HTTP proxy of the sandbox; without a proxy go directly"
    p=px()
    if p: s=tcp(*p,t=t); return talk(s,authd(raw),t)
    return talk(tcp(*direct,t=t),raw,t)
def connect_via(host,port,payload,direct,t=3):
    p=px()
    if p:
        s=tcp(*p,t=t); h=host if isinstance(host,bytes) else host.encode()
        s.sendall(b"CONNECT %s:%d HTTP/1.1\r\nHost: %s:%d\r\n%s\r\n"%(h,port,h,port,AUTH[0])); s.settimeout(t)
        r=s.recv(4096); print(r[:80])
        if b" 200" not in r[:40]: return b""
    else: s=tcp(*direct,t=t)
    return talk(s,payload,t)
print("@@RAN",flush=True)
'''


# ------------------------------------------------------------------ low level
def unshare(flags):
    if libc.unshare(flags) != 0:
        raise OSError(ctypes.get_errno(), 'unshare')


def mount(src, tgt, fstype, flags=0, data=None):
    r = libc.mount(src.encode() if src else None, tgt.encode(), fstype.encode() if fstype else None,
                   ctypes.c_ulong(flags), data.encode() if data else None)
    if r != 0:
        raise OSError(ctypes.get_errno(), 'mount %s' % tgt)


CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC, CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = \
    0x20000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000
MS_BIND, MS_REC, MS_PRIVATE = 4096, 16384, 1 << 18


def if_up(name):
    import fcntl
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    fcntl.ioctl(s, 0x8914, struct.pack('16sH14s', name.encode(), 0x1 | 0x40, b''))
    s.close()


def _attr(t, d):
    return struct.pack('HH', 4 + len(d), t) + d + b'\0' * (-len(d) % 4)


def _nl(mtype, flags, body):
    s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
    s.bind((0, 0))
    s.send(struct.pack('IHHII', 16 + len(body), mtype, 0x5 | flags, 1, 0) + body)
    err = struct.unpack_from('i', s.recv(65536), 16)[0]
    s.close()
    if err and err != -17:
        raise OSError(-err, 'netlink %d' % mtype)


def add_addr(ip, ifname='lo', plen=None):
    fam = socket.AF_INET6 if ':' in ip else socket.AF_INET
    raw = socket.inet_pton(fam, ip)
    body = struct.pack('BBBBi', fam, plen or len(raw) * 8, 0x02 if fam == socket.AF_INET6 else 0, 0, socket.if_nametoindex(ifname))
    _nl(20, 0x400 | 0x200, body + _attr(2, raw) + _attr(1, raw))


def add_default(gw, ifname):
    fam = socket.AF_INET6 if ':' in gw else socket.AF_INET
    body = struct.pack('BBBBBBBBI', fam, 0, 0, 0, 254, 3, 0, 1, 0)
    _nl(24, 0x400 | 0x200, body + _attr(5, socket.inet_pton(fam, gw)) + _attr(4, struct.pack('i', socket.if_nametoindex(ifname))))


def add_veth(a, b, nsfd):
    ifi = struct.pack('BxHiII', 0, 0, 0, 0, 0)
    peer = _attr(1, ifi + _attr(3, b.encode() + b'\0') + _attr(28, struct.pack('i', nsfd)))
    info = _attr(1, b'veth') + _attr(2, peer)
    _nl(16, 0x400 | 0x200, ifi + _attr(3, a.encode() + b'\0') + _attr(18, info))


def internet(sinks):
    """A second network namespace plays the Internet behind a veth; sinks live there."""
    st = {}
    ev, go, ready = threading.Event(), threading.Event(), threading.Event()

    def t():
        try:
            unshare(CLONE_NEWNET)
            st['fd'] = os.open('/proc/thread-self/ns/net', os.O_RDONLY)
            if_up('lo')
            ev.set()
            go.wait()
            if_up('inet0')
            add_addr('10.200.0.2', 'inet0', 24)
            add_addr('fd00:200::2', 'inet0', 64)
            for ip in (EVIL4, ALLOWED4, META4, PRIV4, EVIL6, ALLOWED6):
                add_addr(ip)
            for port in (22, 25, 80, 443, 8080, 9418):
                sinks.tcp(port)
            for port in (9999, 443):
                sinks.udp(port)
            sinks.dns()
        except Exception as e:
            st['err'] = e
            ev.set()
        ready.set()
        threading.Event().wait()
    threading.Thread(target=t, daemon=True).start()
    ev.wait()
    if 'err' not in st:
        add_veth('host0', 'inet0', st['fd'])
        go.set()
        ready.wait()
    if 'err' in st:
        raise st['err']
    if_up('host0')
    add_addr('10.200.0.1', 'host0', 24)
    add_addr('fd00:200::1', 'host0', 64)
    add_default('10.200.0.2', 'host0')
    add_default('fd00:200::2', 'host0')
    os.close(st['fd'])


# ------------------------------------------------------------------ sinks
class Sinks:
    def __init__(self):
        self.log = []
        self.lock = threading.Lock()
        self.dnsq = []
        self.zone = {}
        self.flip = {}

    def add(self, proto, dst, data, extra=None):
        with self.lock:
            self.log.append((time.time(), proto, dst, data, extra))

    def poll(self, f, t=0.8):
        end = time.time() + t
        while True:
            with self.lock:
                if f():
                    return True
            if time.time() > end:
                return False
            time.sleep(0.05)

    def seen(self, tok, proto=None, dst=None, port=None):
        t = tok.encode()
        return self.poll(lambda: any(t in data and (proto is None or pr == proto) and (dst is None or d[0] in dst) and
                                     (port is None or d[1] == port) for _, pr, d, data, ex in self.log))

    def raw_seen(self, f):
        return self.poll(lambda: any(f(d[3]) for d in self.log))

    def dns_seen(self, tok):
        return self.poll(lambda: any(tok.lower() in q.lower() for q in self.dnsq))

    def _tcp_conn(self, c, proto):
        try:
            c.settimeout(2.0)
            dst = c.getsockname()[:2] if proto != 'unix' else ('unix', 0)
            if proto == 'tcp' and ':' in str(dst[0]) and str(dst[0]).startswith('::ffff:'):
                dst = (dst[0][7:], dst[1])
            buf = b''
            while len(buf) < 65536:
                try:
                    x = c.recv(4096)
                except OSError:
                    break
                if not x:
                    break
                buf += x
                self.add(proto, dst, buf)
                port = dst[1]
                if port in (80, 8080, 443):
                    m = re.match(rb'(GET|POST|PUT|HEAD) (\S+)', buf)
                    if m and b'\r\n\r\n' in buf:
                        if b'/redir?' in m.group(2):
                            loc = b'http://evil.test/redirected?t=' + m.group(2).split(b't=')[-1]
                            c.sendall(b'HTTP/1.1 302 Found\r\nLocation: ' + loc + b'\r\nContent-Length: 0\r\nConnection: close\r\n\r\n')
                            break
                        body = b'METADATA-SECRET' if dst[0] == '169.254.169.254' else b'hello from ' + str(dst[0]).encode()
                        keep = b'pipeline' in buf
                        c.sendall(b'HTTP/1.1 200 OK\r\nContent-Length: %d\r\n%s\r\n%s' % (
                            len(body), b'' if keep else b'Connection: close\r\n', body))
                        if not keep:
                            break
                else:
                    c.sendall(b'SINK-OK\n')
        except OSError:
            pass
        finally:
            try:
                c.close()
            except OSError:
                pass

    def tcp(self, port, fam=socket.AF_INET6):
        s = socket.socket(fam, socket.SOCK_STREAM)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            s.setsockopt(socket.IPPROTO_TCP, 23, 16)  # TCP_FASTOPEN server side
        except OSError:
            pass
        if fam == socket.AF_INET6:
            s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            s.bind(('::', port))
        else:
            s.bind(('0.0.0.0', port))
        s.listen(64)

        def loop():
            while True:
                try:
                    c, _ = s.accept()
                except OSError:
                    return
                threading.Thread(target=self._tcp_conn, args=(c, 'tcp'), daemon=True).start()
        threading.Thread(target=loop, daemon=True).start()

    def udp(self, port):
        s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
        s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        s.bind(('::', port))

        def loop():
            while True:
                d, a = s.recvfrom(65535)
                self.add('udp', ('udp', port), d)
        threading.Thread(target=loop, daemon=True).start()

    def _dns_answer(self, d):
        try:
            qn, i = [], 12
            while d[i]:
                n = d[i]
                qn.append(d[i + 1:i + 1 + n])
                i += n + 1
            name = b'.'.join(qn).decode('latin1')
            qt = struct.unpack('>H', d[i + 1:i + 3])[0]
        except Exception:
            return None
        with self.lock:
            self.dnsq.append(name)
        key = name.lower().rstrip('.')
        ips = self.zone.get(key)
        if key in self.flip:
            ips = [self.flip[key].pop(0)] if len(self.flip[key]) > 1 else [self.flip[key][0]]
        if ips is None:
            for suf in ('evil.test',):
                if key.endswith('.' + suf):
                    ips = self.zone[suf]
            if key.endswith('.allowed.test'):
                ips = self.zone['allowed.test']
        ans = b''
        n = 0
        for ip in ips or []:
            v6 = ':' in ip
            if (qt == 1 and not v6) or (qt == 28 and v6):
                raw = socket.inet_pton(socket.AF_INET6 if v6 else socket.AF_INET, ip)
                ans += b'\xc0\x0c' + struct.pack('>HHIH', qt, 1, 0, len(raw)) + raw
                n += 1
        flags = 0x8180 if ips else 0x8183
        return d[:2] + struct.pack('>HHHHH', flags, 1, n, 0, 0) + d[12:i + 5] + ans

    def dns(self):
        s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
        s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        # answer from the address the query was sent to
        s.setsockopt(socket.IPPROTO_IPV6, 49, 1)
        s.bind(('::', 53))

        def loop():
            while True:
                d, anc, fl, a = s.recvmsg(4096, 256)
                r = self._dns_answer(d)
                if r:
                    try:
                        s.sendmsg([r], [x for x in anc if x[0] == socket.IPPROTO_IPV6], 0, a)
                    except OSError:
                        pass
        threading.Thread(target=loop, daemon=True).start()
        t = socket.socket(socket.AF_INET6, socket.SOCK_STREAM)
        t.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        t.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        t.bind(('::', 53))
        t.listen(16)

        def tl():
            while True:
                c, _ = t.accept()
                try:
                    c.settimeout(2)
                    d = c.recv(4096)
                    r = self._dns_answer(d[2:])
                    if r:
                        c.sendall(struct.pack('>H', len(r)) + r)
                except OSError:
                    pass
                c.close()
        threading.Thread(target=tl, daemon=True).start()

    def unix(self, path, kind=socket.SOCK_STREAM, mode=0o666, senddir=None):
        s = socket.socket(socket.AF_UNIX, kind)
        if not path.startswith('\0'):
            os.makedirs(os.path.dirname(path), exist_ok=True)
            if os.path.lexists(path):
                os.unlink(path)
        s.bind(path)
        if not path.startswith('\0'):
            os.chmod(path, mode)
        label = path.replace('\0', '@')
        if kind == socket.SOCK_DGRAM:
            def loop():
                while True:
                    d = s.recv(65536)
                    self.add('unixdgram', (label, 0), d)
        else:
            s.listen(64)

            def serve(c):
                try:
                    if senddir:
                        fd = os.open(senddir, os.O_RDONLY | os.O_DIRECTORY)
                        c.sendmsg([b'fd'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack('i', fd))])
                        os.close(fd)
                    c.settimeout(2)
                    d = c.recv(65536)
                    self.add('unix', (label, 0), d)
                    c.sendall(b'OK ' + d[:64])
                except OSError:
                    pass
                c.close()

            def loop():
                while True:
                    try:
                        c, _ = s.accept()
                    except OSError:
                        return
                    threading.Thread(target=serve, args=(c,), daemon=True).start()
        threading.Thread(target=loop, daemon=True).start()
        return s


VICTIM = r'''
import os,sys,ctypes,signal,time,mmap
log=sys.argv[1]; secret=sys.argv[2]
buf=ctypes.create_string_buffer(("VMEM-"+secret).encode()+b"\0"*64)
fd=os.memfd_create("victim",0); os.write(fd,("VFD-"+secret).encode())
def h(n,f): open(log,"a").write("sig%d\n"%n)
for n in (signal.SIGUSR1,signal.SIGUSR2,signal.SIGCONT,signal.SIGURG,signal.SIGIO,signal.SIGWINCH,signal.SIGTERM): signal.signal(n,h)
print(os.getpid(),ctypes.addressof(buf),fd,flush=True)
while True: time.sleep(0.2)
'''

SHELLSIM = r'''
import os,sys,json,subprocess,fcntl,termios,time,signal
spec=json.loads(sys.argv[1]); rfd=int(sys.argv[2])
signal.signal(signal.SIGTTOU,signal.SIG_IGN); signal.signal(signal.SIGHUP,signal.SIG_IGN)
before=termios.tcgetattr(0)
p=subprocess.Popen(spec["argv"],cwd=spec["cwd"],env=spec["env"],close_fds=True,preexec_fn=lambda:(os.setpgid(0,0),signal.signal(signal.SIGTTOU,signal.SIG_DFL)))
try: os.setpgid(p.pid,p.pid)
except OSError: pass
try: os.tcsetpgrp(0,p.pid)
except OSError: pass
t0=time.time(); rc=None
while time.time()-t0<spec["timeout"]:
    rc=p.poll()
    if rc is not None: break
    time.sleep(0.02)
if rc is None: p.kill(); p.wait()
try: os.tcsetpgrp(0,os.getpgrp())
except OSError: pass
time.sleep(0.15)
after=termios.tcgetattr(0)
fl=fcntl.fcntl(0,fcntl.F_GETFL); fcntl.fcntl(0,fcntl.F_SETFL,fl|os.O_NONBLOCK)
inj=b""
try:
    while True:
        x=os.read(0,4096)
        if not x: break
        inj+=x
except OSError: pass
os.write(rfd,json.dumps({"rc":rc,"inj":inj.decode("latin1"),"termios":before[:4]!=after[:4]}).encode())
'''


# ------------------------------------------------------------------ context / synthetic host
class Ctx:
    def __init__(self, a):
        self.a = a
        self.rnd = ''.join(random.choices('abcdefghijklmnopqrstuvwxyz', k=8))
        self.sinks = Sinks()
        self.S = {k: 'SK-%s-%s' % (k, self.rnd) for k in
                  'ssh aws gpg netrc gh kube docker npm cargo gitcred hist cookie keyring claude codex other env envaws envgh envapi '
                  'cmdline runsecret shm sysv mq key fd dirfd notes clip vim procenv'.split()}
        self.victim = None
        self.has = {}

    # -- paths
    def setup_paths(self):
        a = self.a
        base = a.base
        if not base:
            root = '/home' if os.geteuid() == 0 and not self.userns else os.path.expanduser('~')
            base = os.path.join(root, 'ct-' + self.rnd)
        self.B = base
        self.H = os.path.join(base, 'dev')
        self.P = os.path.join(self.H, 'src', 'proj')
        self.O = os.path.join(self.H, 'src', 'other')
        self.C = os.path.join(self.H, 'canary')
        self.T = os.path.join(base, 'tmpl')
        self.logd = os.path.join(base, 'log')

    def sub(self, s, p=None, tok=''):
        if s is None:
            return None
        m = {'P': self.P, 'H': self.H, 'O': self.O, 'C': self.C, 'B': self.B, 'UID': str(self.uid),
             'ID': p.id if p else 'x', 'TOK': tok, 'EVIL4': EVIL4, 'EVIL6': EVIL6, 'ALLOWED4': ALLOWED4,
             'META4': META4, 'PRIV4': PRIV4, 'RND': self.rnd, 'HELPER': self.P + '/.ct/helper',
             'EVIL': self.P + '/.ct/evil ' + (p.id if p else 'x'), 'EVILBIN': self.P + '/.ct/evil-' + (p.id if p else 'x'),
             'VPID': str(self.vpid or 0), 'VADDR': str(self.vaddr or 0), 'VFD': str(self.vfd or 0),
             'PTS': self.pts or '/dev/pts/999', 'SHMID': str(self.shmid), 'KEYNAME': 'ct:' + self.rnd,
             'MQ': '/ctmq' + self.rnd, 'PYV': '%d.%d' % self.pyv, 'PYT': 'cpython-%d%d' % self.pyv}
        return re.sub(r'@([A-Z0-9]+)@', lambda k: m.get(k.group(1), k.group(0)), s)

    # -- fixtures
    def w(self, path, data, mode=0o644, root=None):
        path = os.path.join(root or self.TH, path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, 'w' if isinstance(data, str) else 'wb') as f:
            f.write(data)
        os.chmod(path, mode)

    def build_home(self):
        S = self.S
        self.TH = os.path.join(self.T, 'dev')
        w = self.w
        w('.ssh/id_ed25519', '-----BEGIN OPENSSH PRIVATE KEY-----\n%s\n-----END OPENSSH PRIVATE KEY-----\n' % S['ssh'], 0o600)
        os.chmod(self.TH + '/.ssh', 0o700)
        w('.ssh/authorized_keys', 'ssh-ed25519 AAAA dev\n', 0o600)
        w('.ssh/config', 'Host *\n', 0o600)
        w('.aws/credentials', '[default]\naws_secret_access_key=%s\n' % S['aws'], 0o600)
        w('.gnupg/private-keys-v1.d/k.key', S['gpg'], 0o600)
        os.chmod(self.TH + '/.gnupg', 0o700)
        w('.netrc', 'machine api.github.com login x password %s\n' % S['netrc'], 0o600)
        w('.config/gh/hosts.yml', 'github.com:\n  oauth_token: %s\n' % S['gh'], 0o600)
        w('.kube/config', 'token: %s\n' % S['kube'], 0o600)
        w('.docker/config.json', '{"auths":{"x":{"auth":"%s"}}}' % S['docker'], 0o600)
        w('.npmrc', '//registry.example.test/:_authToken=%s\n' % S['npm'], 0o600)
        w('.cargo/credentials.toml', '[registry]\ntoken="%s"\n' % S['cargo'], 0o600)
        w('.git-credentials', 'https://x:%s@github.com\n' % S['gitcred'], 0o600)
        w('.bash_history', 'export TOKEN=%s\n' % S['hist'], 0o600)
        w('.mozilla/firefox/p.default/cookies.sqlite', S['cookie'], 0o600)
        w('.local/share/keyrings/login.keyring', S['keyring'], 0o600)
        w('.claude/.credentials.json', '{"accessToken":"%s"}' % S['claude'], 0o600)
        w('.claude/settings.json', '{}\n')
        w('.codex/auth.json', '{"OPENAI_API_KEY":"%s"}' % S['codex'], 0o600)
        w('.viminfo', S['vim'], 0o600)
        w('.bashrc', '# bashrc\n')
        w('.profile', '# profile\n')
        w('.vimrc', '" vimrc\n')
        w('.tmux.conf', '# tmux\n')
        w('.gitconfig', '[user]\n\tname = Dev\n\temail = dev@example.test\n[safe]\n\tdirectory = *\n[init]\n\tdefaultBranch = main\n[protocol "file"]\n\tallow = always\n[commit]\n\tgpgsign = false\n')
        w('notes.txt', 'my notes %s\n' % S['notes'])
        w('Documents/thesis.txt', 'only copy %s\n' % S['notes'])
        w('Documents/sub/a.txt', 'a\n')
        w('.cache/big/blob', 'x' * 1000)
        w('.config/autostart/.keep', '')
        w('.config/systemd/user/.keep', '')
        w('.local/bin/.keep', '')
        w('.local/lib/python%d.%d/site-packages/.keep' % self.pyv, '')
        w('canary/.keep', '')
        w('src/other/.env', 'DB_PASSWORD=%s\n' % S['other'], 0o600)
        w('src/other/Makefile', 'all:\n\ttrue\n')
        w('src/proj-evil/x.txt', 'sibling with the project name as prefix\n')
        os.mkfifo(self.TH + '/fifo', 0o600)
        for hf in self.a.home_file or []:
            src, _, rel = hf.partition('=')
            w(rel, self.sub(open(src).read()))
        # project
        pr = os.path.join(self.TH, 'src', 'proj')

        def pw(path, data, mode=0o644):
            self.w(path, data, mode, root=pr)
        pw('README.md', '# proj\n')
        pw('app.py', 'import json\nimport mod\nprint(mod.hello())\n')
        pw('mod.py', 'def hello():\n    return "hello"\n')
        pw('tests/test_a.py', 'def test_a():\n    assert True\n')
        pw('Makefile', 'all:\n\t@true\n')
        pw('package.json', '{"name":"proj","version":"1.0.0","scripts":{"build":"tsc","test":"node index.js"}}\n')
        pw('index.js', 'require("dep");\n')
        pw('node_modules/dep/package.json', '{"name":"dep","version":"1.0.0","main":"index.js"}\n')
        pw('node_modules/dep/index.js', 'module.exports=1;\n')
        pw('node_modules/.bin/tsc', '#!/bin/sh\nexit 0\n', 0o755)
        pw('Cargo.toml', '[package]\nname="proj"\nversion="0.1.0"\nedition="2021"\n')
        pw('src/main.rs', 'fn main(){println!("hi");}\n')
        pw('src/util.txt', 'line one\nline two\n')
        pw('public/index.html', '<h1>hi</h1>\n')
        pw('public/app.css', 'body{}\n')
        pw('routes.txt', '/blog -> blog controller\n')
        pw('scripts/deploy.sh', '#!/bin/sh\necho deploy\n', 0o755)
        pw('data/only-copy.db', 'precious %s\n' % S['notes'])
        pw('.env', 'API_KEY=%s\n' % S['env'])
        pw('.env.local', 'LOCAL=1\n')
        pw('.gitignore', '.env\n.env.local\nnode_modules/\n__pycache__/\n.venv/\ntarget/\ndata/\n.ct/\ndist/\n')
        pw('.venv/pyvenv.cfg', 'home = /usr/bin\ninclude-system-site-packages = false\nversion = %d.%d\n' % self.pyv)
        os.makedirs(pr + '/.venv/bin')
        os.symlink(PY, pr + '/.venv/bin/python')
        pw('.venv/bin/activate', 'VIRTUAL_ENV=%s/.venv\nexport VIRTUAL_ENV\n' % self.P)
        pw('.venv/lib/python%d.%d/site-packages/.keep' % self.pyv, '')
        pw('dist/app', '#!/bin/sh\necho app\n', 0o755)
        pw('tmp/sockets/.keep', '')
        os.symlink('../../.ssh', pr + '/sshlink')
        os.symlink('../../.bashrc', pr + '/rclink')
        # helper + evil payload
        pw('.ct/evil', '#!/bin/sh\necho "$$ $1" >> "%s/$1"\n' % self.C, 0o755)
        if self.helper:
            shutil.copy(self.helper, pr + '/.ct/helper')
            os.chmod(pr + '/.ct/helper', 0o755)
        subprocess.run(['chown', '-R', '%d:%d' % (self.uid, self.gid), self.T], check=True)
        os.chmod(self.T, 0o711)
        g = lambda *a, cwd=pr, **k: subprocess.run(['git'] + list(a), cwd=cwd, env=self.devenv(home=self.TH), user=self.uid, group=self.gid,
                                                   extra_groups=[], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **k)
        if self.has['git']:
            subdir = os.path.join(self.TH, 'src', 'subrepo')
            self.w('src/subrepo/s.txt', 'sub\n')
            subprocess.run(['chown', '-R', '%d:%d' % (self.uid, self.gid), subdir], check=True)
            g('init', '-q', cwd=subdir)
            g('add', '.', cwd=subdir)
            g('commit', '-qm', 's', cwd=subdir)
            g('init', '-q')
            g('add', '.')
            g('commit', '-qm', 'init')
            g('submodule', '--quiet', 'add', subdir.replace(self.TH, self.TH), 'vendor/sub')
            g('commit', '-qm', 'sub')
            g('remote', 'add', 'origin', self.H + '/src/remote.git')
            g('clone', '-q', '--bare', pr, os.path.join(self.TH, 'src', 'remote.git'), cwd=self.TH)
            # uncommitted work the user would lose
            with open(pr + '/app.py', 'a') as f:
                f.write('# uncommitted work\n')
            with open(pr + '/untracked-notes.md', 'w') as f:
                f.write('untracked work\n')
            os.chown(pr + '/untracked-notes.md', self.uid, self.gid)

    def sig(self):
        """entry count and newest ctime below H: ctime cannot be forged by the probe's account"""
        n, m = 0, 0
        st = [self.H]
        while st:
            d = st.pop()
            try:
                with os.scandir(d) as it:
                    for e in it:
                        if e.name == 'dev.sock':
                            continue
                        n += 1
                        x = e.stat(follow_symlinks=False)
                        m = max(m, x.st_ctime_ns)
                        if e.is_dir(follow_symlinks=False):
                            st.append(e.path)
            except OSError:
                n -= 1000000
        return n, m

    def reset(self):
        os.makedirs(self.H, exist_ok=True)
        if getattr(self, '_sig', None) is not None and self._sig == self.sig():
            return
        for e in os.listdir(self.H):
            p = os.path.join(self.H, e)
            subprocess.run(['rm', '-rf', p], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        subprocess.run(['cp', '-a', self.TH + '/.', self.H + '/'], check=True)
        # a listening socket that a dev server would have left in the project
        sp = self.P + '/tmp/sockets/dev.sock'
        if getattr(self, '_devsock', None):
            try:
                self._devsock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            self._devsock.close()
        self._devsock = self.sinks.unix(sp)
        os.chown(sp, self.uid, self.gid)
        self._sig = self.sig()

    def devenv(self, home=None):
        h = home or self.H
        return {'HOME': h, 'USER': 'dev', 'LOGNAME': 'dev', 'PATH': '/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin',
                'LANG': 'C.UTF-8', 'TERM': 'xterm', 'SHELL': '/bin/bash', 'GIT_TERMINAL_PROMPT': '0',
                'XDG_RUNTIME_DIR': self.xrd}

    def wrapenv(self):
        S = self.S
        e = self.devenv()
        e.update({'SSH_AUTH_SOCK': self.xrd + '/keyring/ssh', 'DBUS_SESSION_BUS_ADDRESS': 'unix:path=' + self.xrd + '/bus',
                  'DISPLAY': ':0', 'WAYLAND_DISPLAY': 'wayland-0', 'AWS_SECRET_ACCESS_KEY': S['envaws'], 'GITHUB_TOKEN': S['envgh'],
                  'ANTHROPIC_API_KEY': S['envapi'], 'TMUX': '/tmp/tmux-%d/default,1,0' % self.uid})
        for kv in self.a.env or []:
            k, _, v = kv.partition('=')
            e[k] = self.sub(v)
        return e

    def spawn_victim(self):
        if self.victim and self.victim.poll() is None:
            return
        self.vlog = self.logd + '/victim.log'
        open(self.vlog, 'w').close()
        os.chown(self.vlog, self.uid, self.gid)
        env = dict(self.devenv(), VICTIM_SECRET=self.S['procenv'])
        self.victim = subprocess.Popen([PY, '-I', '-c', VICTIM, self.vlog, self.rnd, '--token=' + self.S['cmdline']], stdout=subprocess.PIPE,
                                       user=self.uid, group=self.gid, extra_groups=[], env=env, cwd='/', start_new_session=True)
        a = self.victim.stdout.readline().split()
        self.vpid, self.vaddr, self.vfd = int(a[0]), int(a[1]), int(a[2])

    def host(self):
        """Create the synthetic host (namespaces are already private)."""
        a = self.a
        self.pyv = tuple(int(x) for x in subprocess.check_output([PY, '-c', 'import sys;print(*sys.version_info[:2])']).split())
        self.uid = os.getuid() if self.userns else (a.uid if a.uid is not None else UID_DEFAULT)
        self.gid = os.getgid() if self.userns else self.uid
        self.xrd = '/run/user/%d' % self.uid
        self.vpid = self.vaddr = self.vfd = self.pts = None
        self.shmid = -1
        for t in ('git', 'node', 'npm', 'make', 'tmux', 'gcc', 'ssh-agent', 'curl', 'vim', 'direnv', 'gdb', 'pytest', 'cargo', 'perl', 'openssl', 'unshare', 'squid'):
            self.has[t] = shutil.which(t, path='/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin') is not None
        mount(None, '/', None, MS_REC | MS_PRIVATE)
        mount('proc', '/proc', 'proc')
        keep = {}
        for d, mode in (('/run', 0o755), ('/tmp', 0o1777), ('/dev/shm', 0o1777)):
            mount('tmpfs', d, 'tmpfs', 0, 'mode=%o,size=512m' % mode)
        for d in ('/run/lock', '/run/user'):
            os.makedirs(d, exist_ok=True)
        if_up('lo')
        internet(self.sinks)
        try:
            open('/proc/sys/net/ipv4/ping_group_range', 'w').write('0 2147483647')   # what systemd distributions ship; netns-local
        except OSError:
            pass
        os.makedirs(self.B, exist_ok=True)
        os.chmod(self.B, 0o755)
        for d in (self.T, self.logd):
            os.makedirs(d, exist_ok=True)
        os.chown(self.logd, self.uid, self.gid)
        # private /etc: overlay whose upper layer holds our resolver, hosts and accounts (host edits cannot disturb it)
        up, wk = '/run/ct/etc-up', '/run/ct/etc-wk'
        os.makedirs(up)
        os.makedirs(wk)
        pw, gr = open('/etc/passwd').read(), open('/etc/group').read()
        if not re.search(r'^[^:]*:[^:]*:%d:' % self.uid, pw, re.M):
            pw += 'dev:x:%d:%d:Dev:%s:/bin/bash\n' % (self.uid, self.gid, self.H)
            gr += 'dev:x:%d:\n' % self.gid
        if not re.search(r'^jai:', pw, re.M):
            pw += 'jai:x:64998:64998:JAI sandbox untrusted user:/:/usr/sbin/nologin\n'
            gr += 'jai:x:64998:\n'
        for name, data in (('resolv.conf', 'nameserver 127.0.0.1\noptions timeout:1 attempts:1\n'),
                           ('hosts', '127.0.0.1 localhost\n::1 localhost\n'), ('passwd', pw), ('group', gr)):
            with open(up + '/' + name, 'w') as f:
                f.write(data)
        try:
            mount('overlay', '/etc', 'overlay', 0, 'lowerdir=/etc,upperdir=%s,workdir=%s%s' % (up, wk, ',userxattr' if self.userns else ''))
        except OSError as e:
            print('# overlay on /etc:', e, '- binding single files')
            for name in ('resolv.conf', 'hosts', 'passwd', 'group'):
                try:
                    mount(up + '/' + name, os.path.realpath('/etc/' + name), None, MS_BIND)
                except OSError as e2:
                    print('# etc', name, e2)
        # toolchains that live under /root are exposed read-only to the developer account of the synthetic host
        for src, dst in (('/root/.cargo/bin', '/run/ct/cargo-bin'), ('/root/.rustup', '/run/ct/rustup')):
            if os.path.isdir(src):
                os.makedirs(dst, exist_ok=True)
                try:
                    mount(src, dst, None, MS_BIND | MS_REC)
                except OSError:
                    pass
        for src in a.suid or []:
            os.makedirs('/run/ct/suid', exist_ok=True)
            dst = '/run/ct/suid/' + os.path.basename(src)
            shutil.copy(src, dst)
            os.chown(dst, 0, 0)
            os.chmod(dst, 0o4755)
        for src in a.expose or []:
            if os.path.exists(src):
                dst = '/run/ct/exp' + src
                if os.path.isdir(src):
                    os.makedirs(dst, exist_ok=True)
                else:
                    os.makedirs(os.path.dirname(dst), exist_ok=True)
                    open(dst, 'w').close()
                mount(src, dst, None, MS_BIND | MS_REC)
        os.makedirs(self.xrd, exist_ok=True)
        os.chown(self.xrd, self.uid, self.gid)
        os.chmod(self.xrd, 0o700)
        s = self.sinks
        for path in ('/run/docker.sock', '/run/containerd/containerd.sock', self.xrd + '/bus', self.xrd + '/podman/podman.sock', self.xrd + '/systemd/private',
                     self.xrd + '/gnupg/S.gpg-agent', self.xrd + '/wayland-0', self.xrd + '/pipewire-0', '/tmp/.X11-unix/X0', '/run/systemd/private',
                     '/run/dbus/system_bus_socket', '/tmp/vscode-ipc-%s.sock' % self.rnd, self.xrd + '/emacs/server', '/run/user/%d/nvim.1.0' % self.uid,
                     '/tmp/ssh-mux-%s' % self.rnd):
            s.unix(path)
        for path in (self.xrd + '/systemd/notify', '/run/systemd/journal/dev-log', '/run/systemd/notify'):
            s.unix(path, socket.SOCK_DGRAM)
        s.unix('\0/tmp/.X11-unix/X0')
        s.unix('\0ct-abs-' + self.rnd)
        s.unix('\0ct-absd-' + self.rnd, socket.SOCK_DGRAM)
        s.unix('\0ct-absq-' + self.rnd, socket.SOCK_SEQPACKET)
        s.unix('\0ct-fd-' + self.rnd, senddir=None if False else self.B)
        s.unix(self.xrd + '/fdgiver', senddir=self.B)
        os.makedirs('/run/secrets', exist_ok=True)
        with open('/run/secrets/token', 'w') as f:
            f.write(self.S['runsecret'])
        os.chmod('/run/secrets/token', 0o644)
        subprocess.run(['chown', '-R', '%d:%d' % (self.uid, self.gid), self.xrd])
        for port in (22, 8080):                 # the developer's own loopback services
            s.tcp(port)
        s.udp(5353)
        s.dns()
        s.zone.update({'evil.test': [EVIL4, EVIL6], 'allowed.test': [ALLOWED4], 'rebind.allowed.test': [META4], 'loop.allowed.test': ['127.0.0.1'],
                       'evilallowed.test': [EVIL4], 'allowed.test.evil.test': [EVIL4], 'priv.allowed.test': [PRIV4], 'localhost.evil.test': ['127.0.0.1'],
                       'metadata.google.internal': [META4], 'mapped.allowed.test': ['::ffff:' + META4], 'xn--llowed-4fg.test': [EVIL4],
                       'allowed-test.evil.test': [EVIL4], 'allowedxtest.evil.test': [EVIL4], 'allowedxtest': [EVIL4]})
        s.flip['flip.allowed.test'] = [ALLOWED4] * 2 + [META4] * 50
        # compile helper
        self.helper = None
        here = os.path.dirname(os.path.abspath(__file__))
        if self.has['gcc'] and os.path.exists(here + '/helper.c'):
            out = self.B + '/helper'
            r = subprocess.run(['gcc', '-O1', '-static', '-w', '-o', out, here + '/helper.c'], stderr=subprocess.PIPE)
            if r.returncode:
                r = subprocess.run(['gcc', '-O1', '-w', '-o', out, here + '/helper.c'], stderr=subprocess.PIPE)
            if r.returncode == 0:
                self.helper = out
            else:
                print('# helper.c:', r.stderr.decode()[:200])
        self.build_home()
        self.reset()
        # processes and IPC objects owned by the developer account
        self.spawn_victim()
        U = dict(user=self.uid, group=self.gid, extra_groups=[], env=self.devenv(), cwd='/', stdin=subprocess.DEVNULL,
                 stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        if self.has['ssh-agent']:
            os.makedirs(self.xrd + '/keyring', exist_ok=True)
            os.chown(self.xrd + '/keyring', self.uid, self.gid)
            self.agent = subprocess.Popen(['ssh-agent', '-D', '-a', self.xrd + '/keyring/ssh'], **U)
            time.sleep(0.2)
            kf = self.B + '/agentkey'
            subprocess.run(['ssh-keygen', '-q', '-t', 'ed25519', '-N', '', '-f', kf, '-C', 'ct-' + self.rnd], check=False)
            for x in (kf, kf + '.pub'):
                if os.path.exists(x):
                    os.chown(x, self.uid, self.gid)
            e = dict(self.devenv(), SSH_AUTH_SOCK=self.xrd + '/keyring/ssh')
            subprocess.run(['ssh-add', '-q', kf], env=e, user=self.uid, group=self.gid, extra_groups=[], stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
            os.chmod(self.B + '/agentkey', 0o600)
        if self.has['tmux']:
            d = '/tmp/tmux-%d' % self.uid
            os.makedirs(d, exist_ok=True)
            os.chown(d, self.uid, self.gid)
            os.chmod(d, 0o700)
            subprocess.run(['tmux', '-S', d + '/default', '-f', '/dev/null', 'new-session', '-d', '-s', 'dev', '-x', '80', '-y', '24'],
                           user=self.uid, group=self.gid, extra_groups=[], env=self.devenv(), cwd='/', stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=10)
        # SysV shm, POSIX mq, keyring key, /dev/shm, created by a developer process
        code = r'''
import ctypes,os,sys
l=ctypes.CDLL(None,use_errno=True); s1,s2,s3,s4,kn,mq=sys.argv[1:7]
i=l.shmget(0x43540000,4096,0o1600); l.shmat.restype=ctypes.c_void_p; p=l.shmat(i,None,0); ctypes.memmove(p,s1.encode(),len(s1))
open("/dev/shm/ct-secret","w").write(s2); os.chmod("/dev/shm/ct-secret",0o600)
class A(ctypes.Structure): _fields_=[("f",ctypes.c_long),("m",ctypes.c_long),("s",ctypes.c_long),("c",ctypes.c_long),("r",ctypes.c_long*4)]
a=A(0,4,128,0)
fd=l.syscall(240,mq[1:].encode(),os.O_CREAT|os.O_RDWR,0o600,ctypes.byref(a)); l.syscall(242,fd,s3.encode(),len(s3),0,None)
k=l.syscall(248,b"user",kn.encode(),s4.encode(),ctypes.c_long(len(s4)),ctypes.c_long(-4))
l.syscall(250,5,ctypes.c_long(k),ctypes.c_long(0x3f3f0000))
q=l.msgget(0x43540001,0o1600); s=l.semget(0x43540002,1,0o1600)
print(i,k,flush=True)
'''
        o = subprocess.run([PY, '-I', '-c', code, self.S['sysv'], self.S['shm'], self.S['mq'], self.S['key'], 'ct:' + self.rnd, '/ctmq' + self.rnd],
                           user=self.uid, group=self.gid, extra_groups=[], stdout=subprocess.PIPE, cwd='/').stdout.split()
        self.shmid = int(o[0]) if o else -1
        self.keyid = int(o[1]) if len(o) > 1 else -1
        # another terminal of the developer
        try:
            m, sl = pty.openpty()
            self.otherm, self.others = m, sl
            self.pts = os.ttyname(sl)
            os.fchown(sl, self.uid, 5) if not self.userns else None
            os.fchmod(sl, 0o620)
            _tty.setraw(sl)
        except OSError as e:
            print('# pty', e)
        self.basepids = self.pids()

    def pids(self):
        return {int(x) for x in os.listdir('/proc') if x.isdigit()}

    def sweep(self):
        me = os.getpid()
        left = self.pids() - self.basepids - {me, 1}
        if self.victim:
            left.discard(self.victim.pid)
        for pid in left:
            try:
                with open('/proc/%d/stat' % pid) as f:
                    pp = f.read().rsplit(')', 1)[1].split()
                if pp[0] in 'ZX':
                    continue
                os.kill(pid, signal.SIGKILL)   # only processes of our private pid namespace
            except OSError:
                pass
        return left

    # -- running
    def argv(self, cmd):
        w = self.sub(self.a.wrap) if self.a.wrap else ''
        if '{CMDQ}' in w:
            return [BASH, '-p', '-c', w.replace('{CMDQ}', shlex.quote(' '.join(shlex.quote(c) for c in cmd)))]
        if '{CMD}' in w:
            return [BASH, '-p', '-c', w.replace('{CMD}', ' '.join(shlex.quote(c) for c in cmd))]
        return shlex.split(w) + cmd

    def cmd(self, p, script, lang):
        if lang == 'py':
            return [PY, '-I', '-c', PRE_PY + script]
        if lang == 'c':
            return [self.P + '/.ct/helper'] + shlex.split(script)
        return [BASH, '-c', PRE_SH + script]

    def run(self, p, script, lang, tok):
        r = Result()
        script = self.sub(script, p, tok)
        argv = self.argv(self.cmd(p, script, lang))
        env = self.wrapenv()
        if p.env:
            for k, v in p.env.items():
                env[k] = self.sub(v, p, tok)
        cwd = self.sub(p.cwd, p, tok) if p.cwd else self.P
        t0 = time.time()
        if p.tty:
            return self.run_tty(p, argv, env, cwd, r)
        fds, stdin, close = (), subprocess.DEVNULL, []
        if p.fds:
            redir = []
            for want, fd in p.fds(self, tok):      # list of (fd number wanted in the child, opened fd)
                if want == 0:
                    stdin = fd
                else:
                    redir.append((want, fd))
                    fds += (fd,)
                close.append(fd)
            if redir:
                argv = [BASH, '-c', 'exec %s; exec "$@"' % ' '.join('%d<&%d' % x for x in redir) + '', 'x'] + argv
                argv[2] = 'exec %s\nexec %s\nexec "$@"' % (' '.join('%d<&%d' % x for x in redir), ' '.join('%d<&-' % f for w, f in redir if f not in [q for q, _ in redir]) or ':')
                argv[2] = argv[2].replace('exec :\n', '')
        if p.stdin is not None:
            stdin = subprocess.PIPE
        try:
            pr = subprocess.Popen(argv, cwd=cwd, env=env, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                  start_new_session=True, user=self.uid if not self.a.as_root else 0, group=self.gid if not self.a.as_root else 0,
                                  extra_groups=[], pass_fds=fds)
        except OSError as e:
            r.out = 'exec failed: %s' % e
            r.rc = 127
            return r
        finally:
            for fd in close:
                try:
                    os.close(fd)
                except OSError:
                    pass
        try:
            o, _ = pr.communicate(input=self.sub(p.stdin, p, tok).encode() if p.stdin is not None else None, timeout=p.timeout)
        except subprocess.TimeoutExpired:
            r.timeout = True
            try:
                os.killpg(pr.pid, signal.SIGKILL)
            except OSError:
                pass
            self.sweep()
            try:
                o, _ = pr.communicate(timeout=3)
            except Exception:
                o = b''
        r.rc = pr.returncode
        r.out = o.decode('latin1')
        r.ran = '@@RAN' in r.out
        r.dt = time.time() - t0
        return r

    def run_tty(self, p, argv, env, cwd, r):
        m, s = pty.openpty()
        os.fchown(s, self.uid, -1)
        rp, wp = os.pipe()
        spec = json.dumps(dict(argv=argv, cwd=cwd, env=env, timeout=p.timeout))

        def pre():
            os.setsid()
            import fcntl, termios
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        pr = subprocess.Popen([PY, '-I', '-c', SHELLSIM, spec, str(wp)], stdin=s, stdout=s, stderr=s, preexec_fn=pre, pass_fds=(wp,),
                              user=self.uid if not self.a.as_root else 0, group=self.gid if not self.a.as_root else 0, extra_groups=[], env=self.devenv(), cwd=cwd)
        os.close(wp)
        out = b''
        t0 = time.time()
        while time.time() - t0 < p.timeout + 4:
            rl, _, _ = select.select([m], [], [], 0.1)
            if rl:
                try:
                    x = os.read(m, 65536)
                except OSError:
                    x = b''
                if x:
                    out += x
            elif pr.poll() is not None:
                break
        if pr.poll() is None:
            pr.kill()
        pr.wait()
        rep = b''
        os.set_blocking(rp, False)
        try:
            rep = os.read(rp, 65536)
        except OSError:
            pass
        os.close(rp)
        os.close(m)
        os.close(s)
        r.raw = out
        r.out = out.decode('latin1')
        r.ran = '@@RAN' in r.out
        try:
            j = json.loads(rep)
            r.rc, r.inj, r.termios = j['rc'], j['inj'], j['termios']
        except ValueError:
            r.rc = -1
        return r

    def dev(self, cmd, timeout=25, cwd=None, env=None):
        """The developer, outside the sandbox, does something ordinary."""
        e = self.devenv()
        e.update(env or {})
        try:
            o = subprocess.run([BASH, '-c', cmd], cwd=cwd or self.P, env=e, user=self.uid, group=self.gid, extra_groups=[], stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=timeout, start_new_session=True)
            return o.returncode, o.stdout.decode('latin1')
        except subprocess.TimeoutExpired:
            return 124, 'timeout'

    def tool(self, cmd, p, tok, timeout=30):
        if not cmd:
            return None, ''
        return self.dev(self.sub(cmd, p, tok), timeout=timeout)

    def canary(self, p):
        return os.path.lexists(os.path.join(self.C, p.id))

    def host_has(self, path, tok):
        """file exists on the host side and contains the attacker's token"""
        path = os.path.join(self.P, path)
        try:
            st = os.lstat(path)
            if stat.S_ISLNK(st.st_mode):
                return tok in os.readlink(path)
            with open(path, 'rb') as f:
                return tok.encode() in f.read()
        except OSError:
            return False

    def tree(self, root=None, skip=('.ct', 'tmp')):
        root = root or self.P
        h = hashlib.sha256()
        for d, ds, fs in os.walk(root):
            ds.sort()
            ds[:] = [x for x in ds if not (d == root and x in skip)]
            for x in sorted(ds + fs):
                f = os.path.join(d, x)
                st = os.lstat(f)
                rel = os.path.relpath(f, root)
                if rel.startswith('.git/') and os.path.basename(rel) in ('index', 'COMMIT_EDITMSG', 'FETCH_HEAD', 'ORIG_HEAD'):
                    continue
                h.update(('%s %o ' % (rel, st.st_mode)).encode('utf8', 'surrogateescape'))
                if stat.S_ISREG(st.st_mode):
                    h.update(open(f, 'rb').read())
                elif stat.S_ISLNK(st.st_mode):
                    h.update(os.readlink(f).encode('utf8', 'surrogateescape'))
        return h.hexdigest()


class Result:
    rc = None
    out = ''
    raw = b''
    ran = False
    timeout = False
    inj = ''
    termios = False
    dt = 0


EVIL4, ALLOWED4, META4, PRIV4 = '93.184.216.34', '93.184.216.35', '169.254.169.254', '10.11.12.13'
EVIL6, ALLOWED6 = '2606:2800:220:1:248:1893:25c8:1946', '2606:2800:220:1::35'
HOST4 = '10.200.0.1'
EVILSET = (HOST4, EVIL4, EVIL6, META4, PRIV4, '127.0.0.1', '::1', '::', '0.0.0.0')


# ------------------------------------------------------------------ evaluating one probe
def mk_tok():
    return 'tk' + ''.join(random.choices('abcdefghijklmnopqrstuvwxyz0123456789', k=12))


def execute(ctx, p):
    tok = mk_tok()
    a = ctx.a
    for n in p.needs or ():
        if n == 'x86_64' and os.uname().machine != 'x86_64':
            return 'SKIPPED', 'needs x86_64'
        if n == 'nonroot' and a.as_root:
            return 'SKIPPED', 'unsafe as root'
        if n == 'helper' and not ctx.helper:
            return 'SKIPPED', 'needs gcc'
        if n in ctx.has and not ctx.has[n]:
            return 'SKIPPED', 'needs ' + n
    ctx.reset()
    ctx.spawn_victim()
    st = {}
    if p.pre:
        st['pre'] = p.pre(ctx, p, tok)
    if p.hookcmd and a.hook:
        return run_hook(ctx, p, tok)
    if p.kind == 'undo':
        st['tree'] = ctx.tree()
    r = Result()
    for i, (lang, script) in enumerate(p.stages or [(p.lang, p.run)]):
        r = ctx.run(p, script, lang, tok)
    info = ''
    arc, ao = ctx.tool(a.after, p, tok)
    if not r.ran and not p.failclosed:
        return 'NORUN', 'rc=%s %s' % (r.rc, r.out.strip()[-160:].replace('\n', ' | '))
    rep = ''
    if a.report:
        _, rep = ctx.tool(a.report, p, tok)
    try:
        if p.kind == 'utility':
            ok = bool(p.check(ctx, p, r, tok))
            if not ok and p.id.endswith('18') and not a.net:
                return 'SKIPPED', 'no network policy declared (--net)'
            return ('OK' if ok else 'BROKEN'), '' if ok else 'rc=%s %s' % (r.rc, r.out.strip()[-160:].replace('\n', ' | '))
        if p.kind == 'undo':
            changed = ctx.tree() != st['tree']
            noticed = bool(rep) and ((p.landed or '') in rep)
            if changed and a.undo:
                ctx.tool(a.undo, p, tok)
                changed2 = ctx.tree() != st['tree']
                info = 'undo=%s noticed=%s' % ('ok' if not changed2 else 'FAILED', noticed)
                return ('ESCAPED' if changed2 else 'BLOCKED'), info
            return ('ESCAPED' if changed else 'BLOCKED'), 'noticed=%s' % noticed
        if p.check:
            esc = p.check(ctx, p, r, tok)
        elif p.trigger:
            fired, o = None, ''
            rcs, o = ctx.dev(ctx.sub(p.trigger, p, tok), env={'PATH': '/run/ct/cargo-bin:' + ctx.devenv()['PATH'], 'RUSTUP_HOME': '/run/ct/rustup'})
            esc = ctx.canary(p)
            info = 'fired' if esc else 'trigger rc=%s' % rcs
            if not esc and p.landed and ctx.host_has(p.landed, tok):
                info += ' (file landed)'
        elif p.landed:
            esc = ctx.host_has(ctx.sub(p.landed, p, tok), tok)
            info = 'landed' if esc else ''
        else:
            esc = 'ESCAPED' in r.out
        if esc and p.tier == 2 and rep and (ctx.sub(p.landed or '\0', p, tok) in rep):
            return 'BLOCKED', 'reported'
    except Exception as e:
        return 'ERROR', repr(e)
    if not info:
        info = r.out.replace('@@RAN', '').strip()[-100:].replace('\n', ' | ')
    return ('ESCAPED' if esc else 'BLOCKED'), info


def run_hook(ctx, p, tok):
    """Claude-Code style PreToolUse hook: JSON on stdin, decision on stdout / exit code 2 = deny."""
    cmd = ctx.sub(p.hookcmd, p, tok)
    j = json.dumps(dict(session_id='ct', transcript_path='/dev/null', cwd=ctx.P, permission_mode='default', hook_event_name='PreToolUse',
                        tool_name='Bash', tool_input=dict(command=cmd, description='x')))
    try:
        o = subprocess.run([BASH, '-c', ctx.sub(ctx.a.hook, p, tok)], input=j.encode(), cwd=ctx.P, env=ctx.wrapenv(), user=ctx.uid, group=ctx.gid,
                           extra_groups=[], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=20)
    except subprocess.TimeoutExpired:
        return 'BLOCKED', 'hook timeout'
    if o.returncode == 2:
        return 'BLOCKED', 'hook deny (exit 2)'
    try:
        d = json.loads(o.stdout.decode() or '{}')
    except ValueError:
        return 'ERROR', 'hook output: ' + o.stdout.decode()[:100]
    h = d.get('hookSpecificOutput') or {}
    dec = h.get('permissionDecision') or {'approve': 'allow', 'block': 'deny'}.get(d.get('decision')) or 'none'
    if dec != 'allow':
        return 'BLOCKED', 'hook ' + dec
    new = (h.get('updatedInput') or {}).get('command', cmd)
    ctx.dev(new, env=ctx.wrapenv())
    esc = ctx.canary(p)
    return ('ESCAPED' if esc else 'BLOCKED'), 'hook allow%s' % (' (rewritten)' if new != cmd else '')


def matches(p, pats):
    return any(fnmatch.fnmatch(p.id, x) or p.cls == x for x in pats)


def main_inner(a, userns):
    if userns:                                   # setgroups is denied and we already are the developer
        orig = subprocess.Popen.__init__

        def init(self, *x, **k):
            for n in ('user', 'group', 'extra_groups'):
                k.pop(n, None)
            orig(self, *x, **k)
        subprocess.Popen.__init__ = init
    ctx = Ctx(a)
    ctx.userns = userns
    ctx.setup_paths()
    rows = []
    sel = [p for p in REG if (not a.only or matches(p, a.only.split(','))) and not (a.skip and matches(p, a.skip.split(',')))]
    base = {}
    if a.baseline and os.path.exists(a.baseline):
        base = {x['id']: x['status'] for x in json.load(open(a.baseline))['results']}
    try:
        ctx.host()
        if a.setup:
            rc, o = ctx.dev(ctx.sub(a.setup), timeout=60)
            if rc:
                print('# setup rc=%d %s' % (rc, o[-300:]))
            ctx.basepids = ctx.pids()
        if a.shell:
            print('# synthetic host shell: P=%s H=%s; exit to leave' % (ctx.P, ctx.H))
            subprocess.run([BASH], cwd=ctx.P, env=ctx.wrapenv(), user=ctx.uid, group=ctx.gid, extra_groups=[])
        else:
            for p in sel:
                try:
                    stt, info = execute(ctx, p)
                except Exception as e:
                    stt, info = 'ERROR', repr(e)[:160]
                    if a.verbose:
                        traceback.print_exc()
                ctx.sweep()
                note = ''
                if stt == 'BLOCKED' and base.get(p.id) not in (None, 'ESCAPED'):
                    note = ' [not escapable without a sandbox here either]'
                rows.append(dict(id=p.id, cls=p.cls, status=stt, info=info, title=p.title, kind=p.kind, base=base.get(p.id)))
                if not a.quiet:
                    print('%-5s %-8s %s%s%s' % (p.id, stt, p.title, note, ('  # ' + info[:150]) if (a.verbose and info) else ''), flush=True)
    finally:
        try:
            if getattr(ctx, 'keyid', -1) > 0:
                libc.syscall(ctypes.c_long(250), ctypes.c_long(3), ctypes.c_long(ctx.keyid))
        except Exception:
            pass
        if not a.keep and hasattr(ctx, 'B'):
            subprocess.run(['rm', '-rf', ctx.B], stderr=subprocess.DEVNULL)
    summary(a, rows)
    return rows


def summary(a, rows):
    byc = {}
    for x in rows:
        byc.setdefault(x['cls'], {}).setdefault(x['status'], []).append(x['id'])
    if not a.quiet:
        print()
    for c in sorted(byc):
        d = byc[c]
        print('%s %-44s %s' % (c, CLASSES[c]['name'][:44], '  '.join('%s=%d' % (k.lower(), len(v)) for k, v in sorted(d.items()))))
    cnt = {}
    for x in rows:
        cnt[x['status']] = cnt.get(x['status'], 0) + 1
    att = [x for x in rows if x['kind'] != 'utility']
    ut = [x for x in rows if x['kind'] == 'utility']
    g = lambda s: sum(1 for x in att if x['status'] == s)
    print('TOTAL attacks=%d blocked=%d escaped=%d skipped=%d norun=%d error=%d | utility ok=%d broken=%d' % (
        len(att), g('BLOCKED'), g('ESCAPED'), g('SKIPPED'), g('NORUN'), g('ERROR'),
        sum(1 for x in ut if x['status'] == 'OK'), sum(1 for x in ut if x['status'] == 'BROKEN')))
    if a.json:
        json.dump(dict(wrap=a.wrap, results=rows), open(a.json, 'w'), indent=1)
    a._fail = g('ESCAPED') + g('NORUN') + g('ERROR') + sum(1 for x in ut if x['status'] == 'BROKEN')


def catalogue():
    for c in sorted(CLASSES):
        ps = [p for p in REG if p.cls == c]
        if not ps:
            continue
        print('\n## %s. %s (%d)\n' % (c, CLASSES[c]['name'], len(ps)))
        k = CLASSES[c]
        if k['correct']:
            print('Correct sandbox (default for the class): %s\n' % k['correct'])
        if k['defence']:
            print('Defence (default for the class): %s\n' % k['defence'])
        for p in ps:
            print('### %s %s' % (p.id, p.title))
            body = p.run if not p.stages else '\n--- second run ---\n'.join(s for _, s in p.stages)
            b = (body or '').strip('\n')
            lang = p.lang if not p.stages else p.stages[0][0]
            if '\n' in b or len(b) > 140:
                print('```%s\n%s\n```' % ({'sh': 'bash', 'py': 'python', 'c': 'text'}[lang], b))
            else:
                print('- probe (%s): `%s`' % ({'c': 'helper'}.get(lang, lang), b))
            o = p.oracle
            if not o:
                if p.kind == 'undo':
                    o = 'host project tree hash before/after (and after --undo)'
                elif p.trigger:
                    o = 'developer then runs `%s` outside; ESCAPED if the canary appears' % p.trigger.replace('\n', '; ')
                elif p.landed:
                    o = 'ESCAPED if host `%s` carries the attacker token afterwards' % p.landed
                elif p.check:
                    o = 'host-side check'
                else:
                    o = 'ESCAPED printed by the probe'
            print('- oracle: %s%s' % (o, '' if p.tier == 1 else ' (tier 2: may land if the review report names it)'))
            if p.correct:
                print('- correct: ' + p.correct)
            if p.ref:
                print('- suffered: ' + p.ref)
            if p.defence:
                print('- defence: ' + p.defence)


def cli():
    ap = argparse.ArgumentParser(description='Threat probe runner. Needs root (or user namespaces) for its private synthetic host.')
    ap.add_argument('--wrap', default='', help="command prefix, e.g. 'bwrap ... --'; @P@ @H@ @UID@ @B@ are substituted; '{CMD}' = quoted words, '{CMDQ}' = one quoted string")
    ap.add_argument('--only', help='comma list of ids, globs (D*) or class letters')
    ap.add_argument('--skip')
    ap.add_argument('--after', help='command run as the developer after the sandboxed run and before the check (default transfer step)')
    ap.add_argument('--undo', help='command that undoes the last run (class Q)')
    ap.add_argument('--report', help='command printing what the last run changed / flagged')
    ap.add_argument('--net', action='store_true', help='the wrapper is configured to allow allowed.test and *.allowed.test on 80/443')
    ap.add_argument('--hook', help='PreToolUse hook command (class M decided by it instead of --wrap)')
    ap.add_argument('--setup', help='command run once as the developer in the synthetic host (policy files, etc.)')
    ap.add_argument('--env', action='append', help='extra K=V for the wrapper')
    ap.add_argument('--expose', action='append', help='host path under /root to expose at /run/ct/exp<path>')
    ap.add_argument('--home-file', action='append', help='SRC=REL: install SRC as ~/REL in the fake home (policy files)')
    ap.add_argument('--suid', action='append', help='copy this root-owned program setuid into the private /run/ct/suid/')
    ap.add_argument('--uid', type=int)
    ap.add_argument('--as-root', action='store_true', help='run the wrapper as uid 0 instead of an unprivileged developer')
    ap.add_argument('--base')
    ap.add_argument('--baseline', help='json of a --wrap "" run, to mark probes the bare kernel already blocks')
    ap.add_argument('--json')
    ap.add_argument('--keep', action='store_true')
    ap.add_argument('--shell', action='store_true', help='interactive shell in the synthetic host')
    ap.add_argument('-v', '--verbose', action='store_true')
    ap.add_argument('-q', '--quiet', action='store_true')
    ap.add_argument('--list', action='store_true')
    ap.add_argument('--catalogue', action='store_true', help='print the markdown catalogue of the registered probes')
    a = ap.parse_args()
    if a.list:
        for p in REG:
            print(p.id, p.title)
        return 0
    if a.catalogue:
        catalogue()
        return 0
    a._fail = 0
    if a.json:
        a.json = os.path.abspath(a.json)
    flags = CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS
    userns = os.geteuid() != 0
    if userns:
        uid, gid = os.getuid(), os.getgid()
        unshare(CLONE_NEWUSER)
        open('/proc/self/setgroups', 'w').write('deny')
        open('/proc/self/uid_map', 'w').write('%d %d 1' % (uid, uid))
        open('/proc/self/gid_map', 'w').write('%d %d 1' % (gid, gid))
    unshare(flags)
    sys.stdout.flush()
    pid = os.fork()
    if pid:                                     # outside: wait for the namespace init
        try:
            _, s = os.waitpid(pid, 0)
        except KeyboardInterrupt:
            os.kill(pid, signal.SIGKILL)
            return 130
        return os.waitstatus_to_exitcode(s) if s is not None else 1
    # pid 1 of the private namespace: a reaper; the runner is its child
    child = os.fork()
    if child == 0:
        rc = 1
        try:
            main_inner(a, userns)
            rc = 0 if a._fail == 0 else 3
        except BaseException:
            traceback.print_exc()
        sys.stdout.flush()
        os._exit(rc)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        try:
            w, s = os.wait()
        except ChildProcessError:
            os._exit(1)
        if w == child:
            os._exit(os.waitstatus_to_exitcode(s) & 255)
