"""Measures the gate of a room beside a direct connection, and beside squid with two socat
relays if both are installed.

Usage: gate.py ROOM ROUNDS   (in fresh network and mount namespaces, as root of them)

The server is in a network namespace of its own. Each round runs every way once, in turn, so
that other load affects all of them alike. Prints the medians, and their ratio to the direct
way of the same run.
"""
import os, shutil, socket, statistics, struct, subprocess, sys, tempfile, time

HOST, OTHER, PORT_HTTP, PORT_NATIVE = '93.184.216.35', '93.184.216.34', 80, 5432
BULK = 512 << 20

SERVER = r'''
import os, socket, sys, struct, threading
names = socket.socket(2, 2); names.bind(('93.184.216.34', 53))
def dns():
    while 1:
        d, p = names.recvfrom(4096); i = 12
        while d[i]: i += d[i] + 1
        q, t = d[12:i+5], struct.unpack('>H', d[i+1:i+3])[0]
        a = b'\xc0\x0c\0\1\0\1\0\0\0\x3c\0\4' + socket.inet_aton('93.184.216.35') if t == 1 else b''
        names.sendto(d[:2] + b'\x81\x80\0\1' + (b'\0\1' if a else b'\0\0') + b'\0\0\0\0' + q + a, p)
threading.Thread(target=dns, daemon=True).start()
block = bytes(1 << 20)
def carry(c):
    c.setsockopt(6, 1, 1)
    while 1:
        try: d = c.recv(65536)
        except OSError: return
        if not d: return
        if d.startswith(b'GET /bulk'):
            c.sendall(b'HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n' % BULK)
            for i in range(BULK >> 20): c.sendall(block)
        else: c.sendall(b'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok')
def serve(port):
    s = socket.socket(); s.setsockopt(1, 2, 1); s.bind(('0.0.0.0', port)); s.listen(4096)
    while 1:
        c = s.accept()[0]
        threading.Thread(target=carry, args=(c,), daemon=True).start()
for port in (80, 5432): threading.Thread(target=serve, args=(port,), daemon=True).start()
threading.Event().wait()
'''.replace('BULK', str(BULK))

CLIENT = r'''
import socket, sys, time
what, port = sys.argv[1], int(sys.argv[2])
via = sys.argv[3] if len(sys.argv) > 3 else None
host = 'bench.test' if via is None else None
address = sys.argv[4] if len(sys.argv) > 4 else None
def dial():
    if via:
        s = socket.create_connection(('127.0.0.1', int(via)))
    else:
        s = socket.create_connection((address or NAME, port))
    s.setsockopt(6, 1, 1)
    return s
NAME = 'bench.test'
prefix = 'http://93.184.216.35:%d' % port if via else ''
def request(path): return ('GET %s%s HTTP/1.1\r\nHost: %s\r\n\r\n' % (prefix, path, '93.184.216.35:%d' % port if via else NAME)).encode()
if not via and not address: address = socket.getaddrinfo(NAME, port, socket.AF_INET)[0][4][0]
buffer = bytearray(1 << 20)
def bulk():
    s = dial(); s.sendall(request('/bulk')); left = BULK
    start = time.perf_counter()
    while left > 0:
        n = s.recv_into(buffer)
        if not n: raise SystemExit('short')
        left -= n
    return BULK / (time.perf_counter() - start) / 1e6
def trips():
    s = dial(); s.sendall(request('/')); s.recv(65536); start = time.perf_counter(); word = request('/')
    for i in range(3000): s.sendall(word); s.recv(65536)
    return (time.perf_counter() - start) / 3000 * 1e6
def connections():
    start = time.perf_counter(); word = request('/')
    for i in range(400): s = dial(); s.sendall(word); s.recv(65536); s.close()
    return 400 / (time.perf_counter() - start)
print({'bulk': bulk, 'trips': trips, 'connections': connections}[what]())
'''.replace('BULK', str(BULK))

HOLD = r'''
import socket, sys, resource
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
socket.getaddrinfo('bench.test', 80); a = []
for i in range(5000):
    s = socket.create_connection(('93.184.216.35', 80)); s.sendall(b'GET / HTTP/1.1\r\nHost: bench.test\r\n\r\n'); a.append(s)
print('held', len(a), flush=True); sys.stdin.read()
'''

def sh(*words): subprocess.run(words, check=True)

def main():
    room, rounds = sys.argv[1], int(sys.argv[2])
    base = tempfile.mkdtemp(dir='/var/tmp'); os.chmod(base, 0o755)
    work = base + '/work'; os.mkdir(work); os.chmod(work, 0o777)
    far = subprocess.Popen(['unshare', '-n', 'sleep', '3600']); time.sleep(.3)
    inside = ['nsenter', '-t', str(far.pid), '-n']
    sh('ip', 'link', 'set', 'lo', 'up')
    sh('ip', 'link', 'add', 'out', 'type', 'veth', 'peer', 'name', 'far', 'netns', str(far.pid))
    sh('ip', 'addr', 'add', '10.200.0.1/30', 'dev', 'out'); sh('ip', 'link', 'set', 'out', 'mtu', '65535', 'up')
    sh(*inside, 'ip', 'link', 'set', 'lo', 'up')
    sh(*inside, 'ip', 'addr', 'add', '10.200.0.2/30', 'dev', 'far'); sh(*inside, 'ip', 'link', 'set', 'far', 'mtu', '65535', 'up')
    for address in (HOST, OTHER): sh(*inside, 'ip', 'addr', 'add', address + '/32', 'dev', 'lo')
    sh('ip', 'route', 'add', 'default', 'via', '10.200.0.2')
    started = [subprocess.Popen([*inside, sys.executable, '-c', SERVER])]; time.sleep(.7)
    open(base + '/resolv.conf', 'w').write('nameserver %s\n' % OTHER)
    open(base + '/hosts', 'w').write('127.0.0.1 localhost\n')
    plain = [room, '--host', base + '/facts', '--rw', work, '--cwd', work]
    rules = ['--resolver', base + '/resolv.conf', '--hosts', base + '/hosts', '--host-rule', 'allow bench.test', '--host-rule', 'allow bench.test:5432']
    python = '/usr/bin/python3'
    def measure(words):
        done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300)
        if done.returncode: raise SystemExit('%r: %s' % (words[-4:], done.stderr))
        return float(done.stdout)
    ways = {
        'direct': lambda what: measure([python, '-c', CLIENT, what, '80', '', HOST]),
        'handed over': lambda what: measure([*plain, *rules, '--', python, '-c', CLIENT, what, '5432']),
        'inspected': lambda what: measure([*plain, *rules, '--', python, '-c', CLIENT, what, '80']),
    }
    if shutil.which('squid') and shutil.which('socat'):
        os.chmod(base, 0o777)
        open(base + '/squid.conf', 'w').write('http_port 127.0.0.1:3129\nhttp_access allow all\ncache deny all\naccess_log none\ncache_log /dev/null\npid_filename none\nshutdown_lifetime 0\n')
        started.append(subprocess.Popen(['squid', '-N', '-f', base + '/squid.conf'], stderr=subprocess.DEVNULL))
        started.append(subprocess.Popen(['socat', 'UNIX-LISTEN:%s/sock,fork' % base, 'TCP:127.0.0.1:3129']))
        started.append(subprocess.Popen(['socat', 'TCP-LISTEN:3130,fork,reuseaddr,backlog=1024', 'UNIX-CONNECT:%s/sock' % base]))
        time.sleep(3)
        ways['squid and socat'] = lambda what: measure([python, '-c', CLIENT, what, '80', '3130'])
    try:
        for what, unit in (('bulk', 'MB/s'), ('trips', 'µs a round trip'), ('connections', 'connections/s')):
            results = {way: [] for way in ways}
            for _ in range(rounds):
                for way, run in ways.items(): results[way].append(run(what))
            first = statistics.median(results['direct'])
            for way, all in results.items():
                ratio = statistics.median(a / b for a, b in zip(all, results['direct']))
                print('%-12s %-16s %10.1f %-16s %.2f' % (what, way, statistics.median(all), unit, ratio), flush=True)
        hold(inside, started, [*plain, *rules, '--', python, '-c', HOLD])
        start(plain, rules, rounds)
    finally:
        for process in started: process.kill()
        far.kill(); shutil.rmtree(base, ignore_errors=True)

def hold(inside, started, words):
    """The memory of the gate with 5,000 connections that are open and idle."""
    room = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    room.stdout.readline(); memory, end = 0, time.time() + 30
    # The gate has two sockets for each connection.
    while not memory and time.time() < end:
        time.sleep(.2)
        for pid in children(room.pid):
            try: text = open('/proc/%d/status' % pid).read(); fds = len(os.listdir('/proc/%d/fd' % pid))
            except OSError: continue
            if fds > 10000: memory = int(text.split('VmRSS:')[1].split()[0])
    print('held         5000 connections %10.1f MiB' % (memory / 1024), flush=True)
    room.stdin.close(); room.wait()

def children(pid):
    found = []
    for thread in os.listdir('/proc/%d/task' % pid):
        found += [int(child) for child in open('/proc/%d/task/%s/children' % (pid, thread)).read().split()]
    return found + [inner for child in found for inner in children(child)]

def start(plain, rules, rounds):
    """The time to start a room and end it, with host rules and with a denied network."""
    ways = {'net = deny()': [*plain, '--', '/bin/true'], 'host rules': [*plain, *rules, '--', '/bin/true'],
            'net = allow()': [*plain, '--net', 'allow', '--', '/bin/true']}
    results = {way: [] for way in ways}
    for _ in range(20 * rounds):
        for way, words in ways.items():
            begin = time.perf_counter(); subprocess.run(words, check=True); results[way].append(time.perf_counter() - begin)
    tenth = {way: sorted(all)[len(all) // 10] for way, all in results.items()}
    for way, value in tenth.items():
        print('start        %-16s %10.2f ms               %.2f' % (way, value * 1e3, value / tenth['net = deny()']), flush=True)

main()
