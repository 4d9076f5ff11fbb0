//! Rules about addresses and the loopback where no namespaces can be made: the monitor carries
//! out each `connect`.
#![cfg(target_os = "linux")]
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stderr,
    reason = "helpers of tests"
)]

mod support;

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use support::{PRELUDE, PYTHON, World, python_is_missing, text, without_a_room};

/// A server on the host that answers `hello`, and counts its clients.
fn server() -> (u16, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("0.0.0.0:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let seen = Arc::<AtomicUsize>::default();
    let clients = seen.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            clients.fetch_add(1, Ordering::SeqCst);
            let mut stream = stream.unwrap();
            let _ = stream.write_all(b"hello");
            std::thread::spawn(move || stream.read_to_end(&mut Vec::new()));
        }
    });
    (port, seen)
}

fn python(world: &World, body: &str) -> String {
    text(&world.run(&[PYTHON, "-c", &format!("{PRELUDE}{body}")]))
}

#[test]
fn only_granted_ports_of_the_loopback_are_reached() {
    if python_is_missing() {
        return;
    }
    without_a_room(|world| {
        let (open, _) = server();
        let (closed, seen) = server();
        let world = world.option(&["--localhost", &open.to_string()]);
        let body = format!(
            "
def get(address, family=socket.AF_INET):
    s = socket.socket(family); s.settimeout(5); s.connect(address); return s.recv(9).decode()
print(get(('127.0.0.1', {open})), get(('::ffff:127.0.0.1', {open}), socket.AF_INET6))
s = socket.socket(); s.setblocking(False); print(s.connect_ex(('127.0.0.1', {open})) in (0, 115))
import time
begin = time.time()
for address in [('127.0.0.1', {closed}), ('0.0.0.0', {open}), ('93.184.216.34', 443), ('169.254.169.254', 80)]:
    try: print(get(address))
    except ConnectionRefusedError: print('refused')
print(time.time() - begin < 1)"
        );
        let expected = "hello hello\nTrue\nrefused\nrefused\nrefused\nrefused\nTrue";
        assert_eq!(python(&world, &body), expected, "as {:?}", world.who);
        assert_eq!(seen.load(Ordering::SeqCst), 0);
    });
}

#[test]
fn no_other_way_to_the_network_is_left() {
    if python_is_missing() {
        return;
    }
    without_a_room(|world| {
        let (open, _) = server();
        let (closed, seen) = server();
        let world = world.option(&["--localhost", &open.to_string()]);
        let body = format!(
            "
evil = ('127.0.0.1', {closed})
raw = struct.pack('=HH4s8x', 2, socket.htons({closed}), b'\\x7f\\0\\0\\1')
good = struct.pack('=HH4s8x', 2, socket.htons({open}), b'\\x7f\\0\\0\\1')
def tcp():
    s = socket.socket(); s.connect(('127.0.0.1', {open})); return s
def unspec():
    s = tcp(); libc.connect(s.fileno(), struct.pack('=H14x', 0), 16); s.connect(evil)
def shut():
    s = tcp(); s.shutdown(2); s.connect(evil)
def fast(): socket.socket().sendto(b'x', 0x20000000, evil)
def fast_message(): socket.socket().sendmsg([b'x'], [], 0x20000000, evil)
def deferred():
    s = socket.socket(); s.setsockopt(6, 30, 1); s.connect(evil); s.send(b'x')
def server(): socket.socket().bind(('0.0.0.0', 0))
def listen(): s = socket.socket(); s.listen(1)
def route(): tcp().setsockopt(0, 4, bytes([131, 7, 4, 127, 0, 0, 1, 0]))
def flip():
    import threading
    b = ctypes.create_string_buffer(good, 16)
    def work():
        for i in range(20000): b.raw = raw; b.raw = good
    t = threading.Thread(target=work, daemon=True); t.start()
    for i in range(200):
        s = socket.socket(); s.settimeout(2)
        if libc.connect(s.fileno(), b, 16) == 0 and s.getpeername()[1] == {closed}: print('ESCAPED'); return
    raise OSError(13)
attacks = [lambda: socket.socket(2, 2), lambda: socket.socket(2, 3, 6), lambda: socket.socket(2, 1, 262), lambda: socket.socket(2, 1, 132),
    lambda: socket.socket(16, 3, 0), lambda: socket.socket(17, 3, 0), lambda: socket.socket(40, 1, 0), lambda: socket.socket(1, 1), lambda: socket.socket(43, 1, 0),
    unspec, shut, fast, fast_message, deferred, server, listen, route, flip]
for number, attack in enumerate(attacks):
    try: attack(); print('ESCAPED', number)
    except OSError: pass
print('done')"
        );
        assert_eq!(python(&world, &body), "done", "as {:?}", world.who);
        assert_eq!(seen.load(Ordering::SeqCst), 0);
    });
}

#[test]
fn a_range_of_addresses_opens_no_loopback() {
    if python_is_missing() {
        return;
    }
    without_a_room(|world| {
        let (port, _) = server();
        let world = world.option(&["--host-rule", &format!("allow 0.0.0.0/0:{port}")]);
        let get = |host: &str| {
            let body = format!(
                "
try: print(socket.create_connection(('{host}', {port}), 3).recv(9).decode())
except OSError as e: print(type(e).__name__)"
            );
            python(&world, &body)
        };
        assert_eq!(get("127.0.0.1"), "ConnectionRefusedError", "as {:?}", world.who);
        assert_eq!(get("0.0.0.0"), "ConnectionRefusedError");
        let own = std::process::Command::new("hostname").arg("-I").output();
        let own = own.map(|output| text(&output)).unwrap_or_default();
        match own.split_whitespace().find(|address| !address.contains(':')) {
            Some(address) => assert_eq!(get(address), "hello", "{address}"),
            None => eprintln!("SKIPPED (no address): a granted range without a room"),
        }
    });
}

#[test]
fn names_are_refused_with_the_reason_without_a_room() {
    without_a_room(|world| {
        let world = world.option(&["--host-rule", "allow github.com"]);
        let output = world.run(&["/bin/true"]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{said}");
        assert!(said.contains("takes a room, and none can be made here"), "{said}");
        assert!(said.contains("name only addresses"), "{said}");
    });
}
