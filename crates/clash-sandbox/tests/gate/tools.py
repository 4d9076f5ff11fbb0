"""Real programs behind the gate of a room, each with only its host allowed, against servers
with names and a certificate authority of their own.

Usage: tools.py ROOM [PREFIX…]   (in fresh network and mount namespaces, as root of them)

Each program runs twice: with its host allowed it must work, and without it must fail soon.
Prints one line a program: `name ok|broken|skipped detail`, and `name without its host: …`.
"""
import base64, hashlib, io, json, os, shutil, subprocess, sys, tarfile, tempfile, time, zipfile

HERE, DNS = '93.184.216.35', '93.184.216.34'
NAMES = ['git.test', 'crates.test', 'npm.test', 'pypi.test', 'go.test', 'web.test', 'db.test']

SERVER = r'''
import http.server, os, socket, ssl, struct, sys, threading
root = sys.argv[1]
def dns():
    s = socket.socket(2, 2); s.bind(('93.184.216.34', 53))
    while 1:
        d, p = s.recvfrom(4096); i = 12
        while d[i]: i += d[i] + 1
        q, t = d[12:i+5], struct.unpack('>H', d[i+1:i+3])[0]
        a = b'\xc0\x0c\0\1\0\1\0\0\0\x3c\0\4' + socket.inet_aton('93.184.216.35') if t == 1 else b''
        s.sendto(d[:2] + b'\x81\x80\0\1' + (b'\0\1' if a else b'\0\0') + b'\0\0\0\0' + q + a, p)
class Handler(http.server.SimpleHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    def translate_path(self, path):
        path = path.split('?')[0].replace('%2f', '/').replace('!', '').strip('/')
        found = os.path.join(root, self.headers.get('Host', 'none').split(':')[0], path)
        return os.path.join(found, 'index.json') if os.path.exists(found + '/index.json') else found
    def do_GET(self):
        if self.headers.get('Upgrade', '').lower() == 'websocket':
            self.send_response(101); self.send_header('Upgrade', 'websocket'); self.send_header('Connection', 'Upgrade'); self.end_headers()
            self.wfile.write(b'\x81\x05hello'); self.wfile.flush(); self.close_connection = True; return
        super().do_GET()
    def log_message(self, *a): pass
class Server(http.server.ThreadingHTTPServer): daemon_threads = True
def web(port, tls):
    server = Server(('0.0.0.0', port), Handler)
    if tls:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER); context.load_cert_chain(root + '/leaf.pem', root + '/leaf.key')
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    server.serve_forever()
for port, tls in ((80, False), (443, True)): threading.Thread(target=web, args=(port, tls), daemon=True).start()
dns()
'''

JAVA = '''import java.io.*; import java.net.*;
public class Get { public static void main(String[] a) throws Exception {
  try (BufferedReader in = new BufferedReader(new InputStreamReader(new URL(a[0]).openStream()))) { System.out.println(in.readLine()); } } }
'''
GO = '''package main
import ("fmt"; "io"; "net/http"; "os")
func main() { r, e := http.Get(os.Args[1]); if e != nil { fmt.Println(e); os.Exit(1) }; b, _ := io.ReadAll(r.Body); fmt.Print(string(b)) }
'''
SOCKET = r'''const r = require('https').get('https://web.test/socket', {headers: {Connection: 'Upgrade', Upgrade: 'websocket', 'Sec-WebSocket-Key': 'x', 'Sec-WebSocket-Version': 13}});
r.on('upgrade', (x, s, head) => { const say = d => { if (d.toString('latin1').includes('hello')) { console.log('hello'); process.exit(0); } }; say(head); s.on('data', say); });
r.on('error', e => { console.error(e.message); process.exit(1); });'''

def sh(*words, **more): return subprocess.run([str(word) for word in words], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, **more)

def write(path, data):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, 'wb') as file: file.write(data if isinstance(data, bytes) else data.encode())

def archive(files):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode='w:gz') as tar:
        for name, text in files.items():
            info = tarfile.TarInfo(name); info.size = len(text); info.mode = 0o644; tar.addfile(info, io.BytesIO(text.encode()))
    return out.getvalue()

def zipped(files):
    out = io.BytesIO()
    with zipfile.ZipFile(out, 'w') as archive:
        for name, text in files.items(): archive.writestr(name, text)
    return out.getvalue()

def certificates(site):
    sh('openssl', 'req', '-x509', '-newkey', 'rsa:2048', '-nodes', '-days', '2', '-subj', '/CN=test authority', '-keyout', site + '/ca.key', '-out', site + '/ca.pem')
    sh('openssl', 'req', '-newkey', 'rsa:2048', '-nodes', '-subj', '/CN=leaf', '-keyout', site + '/leaf.key', '-out', site + '/leaf.csr')
    write(site + '/names', 'subjectAltName=' + ','.join('DNS:' + name for name in NAMES))
    sh('openssl', 'x509', '-req', '-days', '2', '-in', site + '/leaf.csr', '-CA', site + '/ca.pem', '-CAkey', site + '/ca.key', '-CAcreateserial', '-extfile', site + '/names', '-out', site + '/leaf.pem')

def registries(site):
    crate = archive({'demo-0.1.0/Cargo.toml': '[package]\nname = "demo"\nversion = "0.1.0"\nedition = "2021"\n', 'demo-0.1.0/src/lib.rs': ''})
    write(site + '/crates.test/index/config.json', json.dumps({'dl': 'https://crates.test/dl'}))
    write(site + '/crates.test/index/de/mo/demo', json.dumps({'name': 'demo', 'vers': '0.1.0', 'deps': [], 'cksum': hashlib.sha256(crate).hexdigest(), 'features': {}, 'yanked': False}) + '\n')
    write(site + '/crates.test/dl/demo/0.1.0/download', crate)
    package = archive({'package/package.json': json.dumps({'name': 'demo', 'version': '1.0.0'})})
    digest = 'sha512-' + base64.b64encode(hashlib.sha512(package).digest()).decode()
    version = {'name': 'demo', 'version': '1.0.0', 'dist': {'tarball': 'https://npm.test/tar/demo-1.0.0.tgz', 'integrity': digest}}
    write(site + '/npm.test/demo/index.json', json.dumps({'name': 'demo', 'dist-tags': {'latest': '1.0.0'}, 'versions': {'1.0.0': version}}))
    write(site + '/npm.test/tar/demo-1.0.0.tgz', package)
    wheel = zipped({'demo.py': '', 'demo-1.0.dist-info/METADATA': 'Metadata-Version: 2.1\nName: demo\nVersion: 1.0\n', 'demo-1.0.dist-info/WHEEL': 'Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n', 'demo-1.0.dist-info/RECORD': 'demo.py,,\ndemo-1.0.dist-info/METADATA,,\ndemo-1.0.dist-info/WHEEL,,\ndemo-1.0.dist-info/RECORD,,\n'})
    write(site + '/pypi.test/simple/demo/index.html', '<a href="/files/demo-1.0-py3-none-any.whl">demo-1.0-py3-none-any.whl</a>')
    write(site + '/pypi.test/files/demo-1.0-py3-none-any.whl', wheel)
    module = site + '/go.test/demo.test/m/@v/'
    write(module + 'list', 'v1.0.0\n'); write(module + 'v1.0.0.mod', 'module demo.test/m\n')
    write(module + 'v1.0.0.info', json.dumps({'Version': 'v1.0.0', 'Time': '2024-01-01T00:00:00Z'}))
    write(module + 'v1.0.0.zip', zipped({'demo.test/m@v1.0.0/go.mod': 'module demo.test/m\n', 'demo.test/m@v1.0.0/m.go': 'package m\n'}))
    write(site + '/web.test/page', 'hello\n')

def repository(site, base):
    env = {**os.environ, 'GIT_CONFIG_GLOBAL': '/dev/null', 'GIT_AUTHOR_NAME': 'a', 'GIT_AUTHOR_EMAIL': 'a@b', 'GIT_COMMITTER_NAME': 'a', 'GIT_COMMITTER_EMAIL': 'a@b'}
    bare = site + '/git.test/repo.git'
    sh('git', 'init', '-q', '-b', 'main', base + '/source', env=env); write(base + '/source/file', 'hello\n')
    sh('git', '-C', base + '/source', 'add', '.', env=env); sh('git', '-C', base + '/source', 'commit', '-qm', 'x', env=env)
    sh('git', 'clone', '-q', '--bare', base + '/source', bare, env=env); sh('git', '-C', bare, 'update-server-info', env=env)
    return bare

def start_ssh(inside, base, work):
    sshd = shutil.which('sshd') or '/usr/sbin/sshd'
    if os.getuid() != 0 or not os.path.exists(sshd) or not os.path.exists('/run/sshd') and not os.access('/run', os.W_OK): return None
    os.makedirs('/run/sshd', exist_ok=True)
    for name in (base + '/host', work + '/key'): sh('ssh-keygen', '-q', '-t', 'ed25519', '-N', '', '-f', name)
    shutil.copy(work + '/key.pub', base + '/keys')
    write(work + '/known', 'git.test ' + open(base + '/host.pub').read())
    return subprocess.Popen([*inside, sshd, '-D', '-e', '-f', '/dev/null', '-h', base + '/host', '-p', '22', '-o', 'AuthorizedKeysFile=' + base + '/keys', '-o', 'StrictModes=no', '-o', 'PermitRootLogin=yes', '-o', 'UsePAM=no', '-o', 'PidFile=none'], stderr=subprocess.DEVNULL)

def start_postgres(inside, base):
    place = max((path for path in ('/usr/lib/postgresql/%d/bin' % number for number in range(9, 30)) if os.path.exists(path + '/initdb')), default=None)
    if place is None or os.getuid() != 0 or not shutil.which('psql'): return None
    user = ['setpriv', '--reuid=65534', '--regid=65534', '--clear-groups']; data = base + '/data'
    os.mkdir(data); os.chown(data, 65534, 65534)
    try: sh(*user, place + '/initdb', '-D', data + '/db', '-U', 'me', '-A', 'trust', '--no-sync', '--no-instructions', cwd='/')
    except subprocess.CalledProcessError: return None
    with open(data + '/db/pg_hba.conf', 'a') as file: file.write('host all all 0.0.0.0/0 trust\n')
    return subprocess.Popen([*inside, *user, place + '/postgres', '-D', data + '/db', '-h', '0.0.0.0', '-k', data], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd='/')

def main():
    room, prefix = sys.argv[1], sys.argv[2:]
    base = tempfile.mkdtemp(dir='/var/tmp'); os.chmod(base, 0o755)
    work, site = base + '/work', base + '/site'; os.mkdir(work); os.mkdir(site)
    certificates(site); registries(site); bare = repository(site, base)
    shutil.copy(site + '/ca.pem', work + '/ca.pem')
    far = subprocess.Popen(['unshare', '-n', 'sleep', '900']); time.sleep(.3)
    inside = ['nsenter', '-t', str(far.pid), '-n']
    sh('ip', 'link', 'set', 'lo', 'up'); sh('ip', 'link', 'add', 'out', 'type', 'veth', 'peer', 'name', 'far', 'netns', far.pid)
    sh('ip', 'addr', 'add', '10.200.0.1/30', 'dev', 'out'); sh('ip', 'link', 'set', 'out', 'up')
    sh(*inside, 'ip', 'link', 'set', 'lo', 'up'); sh(*inside, 'ip', 'addr', 'add', '10.200.0.2/30', 'dev', 'far'); sh(*inside, 'ip', 'link', 'set', 'far', 'up')
    for address in (HERE, DNS): sh(*inside, 'ip', 'addr', 'add', address + '/32', 'dev', 'lo')
    sh('ip', 'route', 'add', 'default', 'via', '10.200.0.2')
    servers = [subprocess.Popen([*inside, '/usr/bin/python3', '-c', SERVER, site], stderr=subprocess.DEVNULL)]
    ssh, postgres = start_ssh(inside, base, work), start_postgres(inside, base)
    servers += [server for server in (ssh, postgres) if server]
    write(base + '/resolv.conf', 'nameserver %s\n' % DNS); write(base + '/hosts', '127.0.0.1 localhost\n')
    write(work + '/Get.java', JAVA); write(work + '/get/main.go', GO); write(work + '/get/go.mod', 'module get\n')
    write(work + '/socket.js', SOCKET)
    write(work + '/crate/Cargo.toml', '[package]\nname = "c"\nversion = "0.1.0"\nedition = "2021"\n[dependencies]\ndemo = { version = "0.1", registry = "own" }\n')
    write(work + '/crate/src/lib.rs', ''); write(work + '/crate/.cargo/config.toml', '[registries.own]\nindex = "sparse+https://crates.test/index/"\n')
    write(work + '/mod/go.mod', 'module x\n'); write(work + '/node/package.json', '{}')
    env = {'PATH': os.environ['PATH'], 'HOME': work, 'TMPDIR': '/tmp', 'GIT_CONFIG_NOSYSTEM': '1', 'SSL_CERT_FILE': work + '/ca.pem', 'GIT_SSL_CAINFO': work + '/ca.pem', 'CURL_CA_BUNDLE': work + '/ca.pem', 'NODE_EXTRA_CA_CERTS': work + '/ca.pem',
           'GOPROXY': 'https://go.test', 'GOSUMDB': 'off', 'GOFLAGS': '-mod=mod', 'GOPATH': work + '/gopath', 'GOCACHE': work + '/gocache', 'CARGO_HTTP_CAINFO': work + '/ca.pem', 'CARGO_NET_RETRY': '0', 'CARGO_HOME': work + '/cargo'}
    ssh_command = 'ssh -F /dev/null -i %s/key -o UserKnownHostsFile=%s/known -o BatchMode=yes -o ConnectTimeout=5' % (work, work)
    for name in ('RUSTUP_HOME', 'RUSTUP_TOOLCHAIN'):
        if name in os.environ: env[name] = os.environ[name]
    rustup = os.environ.get('RUSTUP_HOME', os.path.expanduser('~/.rustup')); env.setdefault('RUSTUP_HOME', rustup)
    if shutil.which('javac'):
        sh('javac', '-d', work, work + '/Get.java')
        sh('keytool', '-importcert', '-noprompt', '-storetype', 'PKCS12', '-storepass', 'changeit', '-alias', 'a', '-file', site + '/ca.pem', '-keystore', work + '/trust')
    if shutil.which('go'): sh('go', 'build', '-o', work + '/static', '.', cwd=work + '/get', env={**env, 'CGO_ENABLED': '0', 'HOME': base, 'GOCACHE': base + '/c', 'GOPATH': base + '/p'})
    tools = [
        ('curl', 'web.test', 'curl', 'curl -sS https://web.test/page | grep hello'),
        ('git clone over https', 'git.test', 'git', 'rm -rf a; git clone -q https://git.test/repo.git a && cat a/file'),
        ('git clone over ssh', 'git.test', ssh and 'ssh', 'rm -rf b; git -c core.sshCommand="%s" clone -q ssh://root@git.test%s b && cat b/file' % (ssh_command, bare)),
        ('cargo fetch', 'crates.test', 'cargo', 'cd crate; rm -rf ../cargo Cargo.lock; cargo fetch'),
        ('npm install', 'npm.test', 'npm', 'cd node; rm -rf node_modules ../.npm; npm install --no-audit --no-fund --fetch-retries=0 --cafile %s/ca.pem --registry https://npm.test/ demo && ls node_modules/demo/package.json' % work),
        ('pip install', 'pypi.test', '/usr/bin/pip3', '/usr/bin/python3 -m pip install -q --break-system-packages --disable-pip-version-check --no-cache-dir --retries 0 --cert ca.pem --index-url https://pypi.test/simple --target p demo && ls p/demo.py; s=$?; rm -rf p; exit $s'),
        ('go get', 'go.test', 'go', 'cd mod; go get demo.test/m@v1.0.0 && s=0 || s=1; chmod -R u+w ../gopath; rm -rf ../gopath; exit $s'),
        ('psql', 'db.test:5432', postgres and 'psql', 'psql -h db.test -U me -d postgres -Atc "select 41 + 1" | grep 42'),
        ('web socket', 'web.test', 'node', 'node socket.js'),
        ('java', 'web.test', 'java', 'java -Djavax.net.ssl.trustStore=trust -Djavax.net.ssl.trustStorePassword=changeit -cp . Get https://web.test/page | grep hello'),
        ('static go', 'web.test', os.path.exists(work + '/static') and 'go', './static https://web.test/page | grep hello'),
    ]
    more = []
    for place in (os.environ.get('CARGO_HOME', os.path.expanduser('~/.cargo')) + '/bin', rustup):
        if os.path.isdir(place): more += ['--rx', place]
    if prefix:
        for place, _, files in os.walk(work):
            for name in ['', *files]: os.chown(os.path.join(place, name), 65534, 65534, follow_symlinks=False)
    def run(rule, script):
        open(work + '/records', 'w').close(); os.chmod(work + '/records', 0o666)
        words = [*prefix, room, '--rw', work, '--cwd', work, '--home', work, '--unprotected', *more, '--resolver', base + '/resolv.conf', '--hosts', base + '/hosts', '--records', work + '/records', '--host-rule', rule, '--', '/bin/sh', '-c', script]
        begin = time.time()
        try: done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=90, env=env)
        except subprocess.TimeoutExpired: done = subprocess.CompletedProcess(words, 99, '', 'timeout')
        return done, time.time() - begin, open(work + '/records').read()
    time.sleep(2)
    try:
        for name, host, program, script in tools:
            found = program and shutil.which(program, path=env['PATH'])
            usable = found and (not prefix or subprocess.run([*prefix, 'test', '-x', found], stderr=subprocess.DEVNULL).returncode == 0)
            if not usable: print('%s: skipped (no %s here)' % (name, name), flush=True); continue
            done, _, records = run('allow ' + host, script)
            print('%s: %s' % (name, 'ok' if done.returncode == 0 and ' Allowed' in records else 'broken %d %r %r' % (done.returncode, (done.stdout + done.stderr)[-600:], records[-300:])), flush=True)
            done, took, records = run('allow other.test', script)
            denied = any(' %s - ' % host.split(':')[0] in line and 'Denied(Name)' in line for line in records.splitlines())
            print('%s without its host: %s %.1f s' % (name, 'ok' if done.returncode != 0 and denied and took < 5 else 'broken %d %r %r' % (done.returncode, (done.stdout + done.stderr)[-600:], records[-300:]), took), flush=True)
    finally:
        for server in servers: server.kill()
        far.kill(); shutil.rmtree(base, ignore_errors=True)

main()
