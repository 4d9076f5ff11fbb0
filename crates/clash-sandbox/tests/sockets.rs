//! Unix sockets inside a room: its processes reach each other, and no process outside.
#![cfg(target_os = "linux")]
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stderr,
    reason = "helpers of tests"
)]

mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;

use support::*;

#[test]
fn processes_of_a_room_talk_over_paths_names_and_pairs() {
    if python_is_missing() {
        return;
    }
    project(|world| {
        let script = r"
import os, socket, threading, tempfile, time, stat
def talk(kind, address, here=None):
    server = socket.socket(socket.AF_UNIX, kind)
    server.bind(address); server.listen()
    assert server.getsockname() == address, server.getsockname()
    child = os.fork()
    if child == 0:
        client = socket.socket(socket.AF_UNIX, kind)
        client.connect(here or address); client.send(b'hello')
        assert client.recv(9) == b'hello'
        os._exit(0)
    peer, _ = server.accept()
    peer.send(peer.recv(9))
    assert os.waitpid(child, 0)[1] == 0
    server.close()
for kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET):
    talk(kind, 'relative'); os.unlink('relative')
    talk(kind, os.getcwd() + '/absolute', 'absolute'); os.unlink('absolute')
    talk(kind, os.path.join(tempfile.mkdtemp(), 's'))
    talk(kind, b'\0abstract')
    os.symlink('target', 'link'); talk(kind, 'target', 'link'); os.unlink('link'); os.unlink('target')
    a, b = socket.socketpair(socket.AF_UNIX, kind); a.send(b'x'); assert b.recv(1) == b'x'
os.umask(0o077)
s = socket.socket(socket.AF_UNIX); s.bind('mode'); assert stat.S_IMODE(os.stat('mode').st_mode) == 0o700
def fails(error, address):
    try: socket.socket(socket.AF_UNIX).connect(address)
    except error: return
    raise AssertionError(address)
fails(ConnectionRefusedError, 'mode')
fails(FileNotFoundError, 'missing')
open('file', 'w').close(); fails(ConnectionRefusedError, 'file')
fails(ConnectionRefusedError, b'\0nobody')
# The loopback works as before, blocking or not.
tcp = socket.create_server(('127.0.0.1', 0)); port = tcp.getsockname()
for timeout in (None, 5):
    c = socket.create_connection(port, timeout); c.send(b'x'); assert tcp.accept()[0].recv(1) == b'x'
tcp.close()
try: socket.create_connection(port); raise AssertionError
except ConnectionRefusedError: pass
try: socket.socket(socket.AF_INET).connect(('127.0.0.1', 1)); raise AssertionError
except ConnectionRefusedError: pass
import multiprocessing
with multiprocessing.Manager() as manager:
    d = manager.dict(a=1); d['b'] = 2; assert dict(d) == {'a': 1, 'b': 2}
fork = multiprocessing.get_context('forkserver')
p = fork.Process(target=time.sleep, args=(0,)); p.start(); p.join(); assert p.exitcode == 0
print('fine')
";
        let output = world.run(&[PYTHON, "-c", script]);
        assert_eq!(text(&output), "fine", "{:?}", output);
    });
}

/// A socket that a process outside made has the rights of that process.
#[test]
fn no_socket_of_a_process_outside_is_reached() {
    if python_is_missing() {
        return;
    }
    project(|world| {
        let path = world.project().join("outside");
        let listener = UnixListener::bind(&path).unwrap();
        listener.set_nonblocking(true).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
        let script = r"
import ctypes, os, socket, struct, threading
def tries(address, kind=socket.SOCK_STREAM):
    try: socket.socket(socket.AF_UNIX, kind).connect(address)
    except OSError as e: return e.errno
    return 0
assert tries('outside') == 13, tries('outside')
assert tries(os.getcwd() + '/outside') == 13
os.symlink('outside', 'link'); assert tries('link') == 13
assert tries('/proc/self/cwd/outside') != 0
for kind in (socket.SOCK_DGRAM,):
    try: socket.socket(socket.AF_UNIX, kind); raise AssertionError
    except PermissionError: pass
    try: socket.socketpair(socket.AF_UNIX, kind); raise AssertionError
    except PermissionError: pass
s = socket.socket(socket.AF_UNIX)
try: s.sendto(b'x', 'outside'); raise AssertionError
except OSError: pass
# Exchanges the address while the monitor judges it.
libc = ctypes.CDLL(None, use_errno=True)
own = socket.socket(socket.AF_UNIX); own.bind('own'); own.listen(1000)
address = ctypes.create_string_buffer(struct.pack('H', 1) + b'own' + bytes(105))
stop = []
def exchange():
    while not stop:
        address[2:10] = b'outside\0'
        address[2:10] = b'own\0\0\0\0\0'
# Exchanges the descriptor: an internet socket for a unix socket.
inet, unix = socket.socket(), socket.socket(socket.AF_UNIX)
fd = os.dup(inet.fileno())
def replace():
    while not stop:
        os.dup2(unix.fileno(), fd); os.dup2(inet.fileno(), fd)
path = ctypes.create_string_buffer(struct.pack('H', 1) + b'outside' + bytes(101))
threads = [threading.Thread(target=f) for f in (exchange, replace)]
[t.start() for t in threads]
for n in range(300):
    c = socket.socket(socket.AF_UNIX); c.setblocking(False)
    libc.connect(c.fileno(), address, 110); c.close()
    libc.connect(fd, path, 110)
stop.append(1); [t.join() for t in threads]
print('fine')
";
        let output = world.run(&[PYTHON, "-c", script]);
        assert_eq!(text(&output), "fine", "{:?}", output);
        assert!(listener.accept().is_err(), "a command reached a process outside");
    });
}
