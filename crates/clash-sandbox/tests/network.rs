//! The network and local sockets, as root and as a plain user, in a room and without one:
//! every known way around a filter, against real servers.
//!
//! Needs /usr/bin/python3 for raw system calls.
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
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use support::*;

/// Answers `hello` to every client, and counts the clients.
struct Server {
    port: u16,
    answered: Arc<AtomicUsize>,
}

impl Server {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let answered = Arc::<AtomicUsize>::default();
        let count = answered.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                count.fetch_add(1, Ordering::SeqCst);
                let _ = stream.unwrap().write_all(b"hello");
            }
        });
        Self { port, answered }
    }

    fn answered(&self) -> usize {
        self.answered.load(Ordering::SeqCst)
    }
}

/// A port on which no server listens.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Ways to a TCP port of the host that Landlock or a filter of `socket` alone would miss,
/// as expressions that are negative on failure. `PORT` is the port.
const WAYS_OUT: [(&str, &str); 12] = [
    ("tcp", "socket.create_connection(('127.0.0.1', PORT)).fileno()"),
    ("tcp through ipv6", "socket.create_connection(('::ffff:127.0.0.1', PORT)).fileno()"),
    ("mptcp", "(lambda s: s.connect(('127.0.0.1', PORT)) or 0)(socket.socket(2, 1, 262))"),
    ("sctp", "(lambda s: s.connect(('127.0.0.1', PORT)) or 0)(socket.socket(2, 1, 132))"),
    ("fast open by sendto", "socket.socket(2, 1, 0).sendto(b'x', 0x20000000, ('127.0.0.1', PORT))"),
    (
        "fast open by sendmsg",
        "socket.socket(2, 1, 0).sendmsg([b'x'], [], 0x20000000, ('127.0.0.1', PORT))",
    ),
    ("fast open by sendmmsg", "sendmmsg(socket.socket(2, 1, 0), PORT)"),
    ("io_uring", "sc(425, 4, ctypes.create_string_buffer(256))"),
    ("vsock", "socket.socket(40, 1, 0).fileno()"),
    ("raw", "socket.socket(2, 3, 255).fileno()"),
    ("packet", "socket.socket(17, 3, 0).fileno()"),
    ("netlink", "socket.socket(16, 3, 15).fileno()"),
];

/// For `sendmmsg`, which Python does not have.
const SENDMMSG: &str = "
def sendmmsg(s, port):
    to = ctypes.create_string_buffer(struct.pack('<HBB4s8x', 2, port >> 8, port & 255, bytes([127, 0, 0, 1])), 16)
    data = ctypes.create_string_buffer(b'x')
    part = ctypes.create_string_buffer(struct.pack('QQ', ctypes.addressof(data), 1))
    message = struct.pack('QIxxxxQQQQiI', ctypes.addressof(to), 16, ctypes.addressof(part), 1, 0, 0, 0, 0)
    number = 307 if os.uname().machine == 'x86_64' else 269
    return sc(number, s.fileno(), ctypes.create_string_buffer(message + bytes(8)), 1, 0x20000000)
";

/// The value of an expression of [`WAYS_OUT`] with this port, inside or outside the sandbox.
fn try_way(world: &World, way: &str, port: u16, inside: bool) -> i32 {
    let way = way.replace("PORT", &port.to_string());
    let script = format!("{PRELUDE}{SENDMMSG}\nshow(lambda: {way})");
    let argv = [PYTHON, "-c", script.as_str()];
    let output = if inside { world.run(&argv) } else { world.bare(&argv) };
    text(&output).parse().unwrap_or_else(|_| panic!("{way}: {}", text(&output)))
}

#[test]
fn no_way_out_of_a_denied_network() {
    in_both_tiers(|world| {
        let server = Server::start();
        for (name, way) in WAYS_OUT {
            let value = try_way(&world, way, server.port, true);
            assert!(value < 0, "{name} as {:?}: {value}", world.who);
        }
        assert_eq!(server.answered(), 0, "as {:?}", world.who);
        // The same without the sandbox, where this kernel and this user can.
        for name in ["tcp", "fast open by sendto", "fast open by sendmsg", "fast open by sendmmsg"]
        {
            let (_, way) = WAYS_OUT.iter().find(|(known, _)| *known == name).unwrap();
            assert!(try_way(&world, way, server.port, false) >= 0, "{name}");
        }
    });
}

#[test]
fn no_datagram_leaves_the_room() {
    in_both_tiers(|world| {
        let receiver = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        receiver.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let port = receiver.local_addr().unwrap().port();
        let send = |text: &str| {
            format!("socket.socket(2, 2, 0).sendto(b'{text}', ('127.0.0.1', {port})) and 0")
        };
        let _ = python(&world, &send("inside"), true);
        assert_eq!(python(&world, &send("outside"), false), 0);
        let mut got = [0; 16];
        let length = receiver.recv(&mut got).unwrap();
        assert_eq!(&got[..length], b"outside", "as {:?}", world.who);
    });
}

#[test]
fn what_listens_inside_does_not_listen_on_the_host() {
    in_both_tiers(|world| {
        let port = free_port();
        // With and without a bind: `listen` binds by itself.
        for bind in [format!("s.bind(('127.0.0.1', {port}))"), "None".to_owned()] {
            let body = format!(
                "{PRELUDE}
try:
    s = socket.socket(2, 1, 0); {bind}; s.listen(1); print('port', s.getsockname()[1], flush=True)
    sys.stdin.read()
    s.settimeout(0); s.accept(); print('REACHED')
except OSError as e: print(e)"
            );
            let prefix = world.prefix();
            let mut command = Command::new(&prefix[0]);
            command.args(&prefix[1..]).args([PYTHON, "-c", &body]);
            let mut command = world.prepare(command);
            command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
            let mut child = command.spawn().unwrap();
            let mut first = Vec::new();
            let out = child.stdout.as_mut().unwrap();
            while !first.ends_with(b"\n") {
                let mut byte = [0];
                assert_eq!(out.read(&mut byte).unwrap(), 1);
                first.extend(byte);
            }
            let first = String::from_utf8(first).unwrap();
            let at = first.trim().strip_prefix("port ").and_then(|port| port.parse().ok());
            if let Some(at) = at {
                assert!(TcpStream::connect(("127.0.0.1", at)).is_err(), "{first}");
            }
            drop(child.stdin.take());
            let rest = child.wait_with_output().unwrap();
            assert!(!text(&rest).contains("REACHED"), "as {:?}", world.who);
        }
    });
}

#[test]
fn a_named_port_of_the_host_can_be_reached_and_no_other() {
    in_a_room(|world| {
        let (granted, other) = (Server::start(), Server::start());
        let world = world.option(&["--localhost", &granted.port.to_string()]);
        for host in ["127.0.0.1", "localhost"] {
            let read = format!(
                "(lambda s: int(s.recv(9) == b'hello'))(socket.create_connection(('{host}', PORT)))"
            );
            let who = world.who;
            assert_eq!(try_way(&world, &read, granted.port, true), 1, "{host} as {who:?}");
            assert!(try_way(&world, &read, other.port, true) < 0, "{host} as {who:?}");
        }
        for (name, way) in WAYS_OUT {
            let value = try_way(&world, way, other.port, true);
            assert!(value < 0, "{name} as {:?}: {value}", world.who);
        }
        assert_eq!((granted.answered(), other.answered()), (2, 0));
        // The same port of another address.
        let elsewhere = "socket.create_connection(('198.51.100.1', PORT), 1).fileno()";
        assert!(try_way(&world, elsewhere, granted.port, true) < 0);
    });
}

#[test]
fn what_is_sent_just_before_the_end_arrives() {
    in_a_room(|world| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let reader = std::thread::spawn(move || {
            let mut all = Vec::new();
            listener.accept().unwrap().0.read_to_end(&mut all).unwrap();
            all.len()
        });
        let world = world.option(&["--localhost", &port.to_string()]);
        let send = "socket.create_connection(('127.0.0.1', PORT)).sendall(b'x' * 300000)";
        assert_eq!(try_way(&world, send, port, true), 0);
        assert_eq!(reader.join().unwrap(), 300_000);
    });
}

#[test]
fn a_port_without_a_server_gives_no_bytes() {
    in_a_room(|world| {
        let port = free_port();
        let world = world.option(&["--localhost", &port.to_string()]);
        let read = "len(socket.create_connection(('127.0.0.1', PORT)).recv(9)) or -1";
        assert!(try_way(&world, read, port, true) < 0);
    });
}

/// Starts a server that answers every client and hangs up only after the client does. Returns
/// its port and the greatest number of clients at the same time.
fn patient_server() -> (u16, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (here, most) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
    let seen = most.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            seen.fetch_max(here.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            let (mut stream, here) = (stream.unwrap(), here.clone());
            std::thread::spawn(move || {
                let _ = stream.write_all(b"x");
                let _ = stream.read_to_end(&mut Vec::new());
                // Counted down before the forwarder can see it.
                here.fetch_sub(1, Ordering::SeqCst);
            });
        }
    });
    (port, most)
}

/// Makes `sys.argv[2]` connections, waits until `sys.argv[3]` of them are answered, ends
/// these, and repeats until all were answered. A bound socket is carried, not handed over.
const MANY: &str = "
import select, socket, sys
port, many, at_a_time = map(int, sys.argv[1:])
def dial():
    s = socket.socket(); s.bind(('127.0.0.1', 0)); s.connect(('127.0.0.1', port)); return s
waiting = [dial() for _ in range(many)]
while waiting:
    answered = []
    while len(answered) < min(at_a_time, len(waiting)):
        ready = select.select([s for s in waiting if s not in answered], [], [], 60)[0]
        if not ready: sys.exit('not answered')
        for s in ready:
            if s.recv(1) != b'x': sys.exit('ended')
            answered.append(s)
    for s in answered:
        s.close(); waiting.remove(s)
print('all')
";

#[test]
fn more_connections_than_are_carried_wait_for_their_turn() {
    in_a_room(|world| {
        let (port, most) = patient_server();
        let text_of = |n: u16| n.to_string();
        let world = world.option(&["--localhost", &text_of(port)]);
        let output = world.run(&[PYTHON, "-c", MANY, &text_of(port), "300", "256"]);
        assert_eq!(text(&output), "all", "as {:?}", world.who);
        assert_eq!(most.load(Ordering::SeqCst), 256, "as {:?}", world.who);
    });
}

#[test]
fn few_descriptors_mean_fewer_connections() {
    in_a_room(|world| {
        let (port, most) = patient_server();
        let port_text = port.to_string();
        let world = world.option(&["--localhost", &port_text]);
        let mut argv = vec!["/bin/sh".to_owned(), "-c".into(), "ulimit -n 64; exec \"$@\"".into()];
        argv.push("sh".into());
        argv.extend(world.prefix());
        argv.extend([PYTHON, "-c", MANY, &port_text, "50", "16"].map(str::to_owned));
        let output = world.bare(&argv.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(text(&output), "all", "as {:?}", world.who);
        assert_eq!(most.load(Ordering::SeqCst), 16, "as {:?}", world.who);
    });
}

#[test]
fn a_served_port_is_reached_from_the_host() {
    in_a_room(|world| {
        let port = free_port();
        let world = world.option(&["--serve", &port.to_string()]);
        let body = format!(
            "{PRELUDE}
s = socket.create_server(('127.0.0.1', {port}))
print('ready', flush=True)
c = s.accept()[0]
c.sendall(b'from inside: ' + c.recv(9))
c.close()"
        );
        let prefix = world.prefix();
        let mut command = Command::new(&prefix[0]);
        command.args(&prefix[1..]).args([PYTHON, "-c", &body]);
        let mut command = world.prepare(command);
        let mut child = command.stdout(std::process::Stdio::piped()).spawn().unwrap();
        let mut ready = [0; 6];
        child.stdout.as_mut().unwrap().read_exact(&mut ready).unwrap();
        // The port opens when the launcher has seen the server.
        let end = std::time::Instant::now() + Duration::from_secs(30);
        let mut stream = loop {
            match TcpStream::connect(("127.0.0.1", port)) {
                Ok(stream) => break stream,
                Err(error) => assert!(std::time::Instant::now() < end, "{error}"),
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        stream.write_all(b"hi").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert_eq!(answer, "from inside: hi");
        assert!(child.wait().unwrap().success());
        assert!(TcpStream::connect(("127.0.0.1", port)).is_err(), "nothing may be left behind");
    });
}

#[test]
fn a_port_taken_on_the_host_is_told_when_a_server_starts() {
    in_a_room(|world| {
        let server = Server::start();
        let port = server.port;
        let world = world.option(&["--serve", &port.to_string()]);
        let output = world.sh("echo RAN");
        assert!(output.status.success() && output.stderr.is_empty(), "{}", text(&output));
        let body = format!(
            "import socket, time\ns = socket.create_server(('127.0.0.1', {port}))\ntime.sleep(2)"
        );
        let output = world.sh(&format!("{PYTHON} -c \"{body}\""));
        let told = format!("port {port} of this machine is taken");
        assert!(text(&output).contains(&told), "{}", text(&output));
    });
}

/// A served port is no right of the command, so a host that cannot serve it refuses nothing.
#[test]
fn a_served_port_on_a_host_without_rooms_is_not_published() {
    without_a_room(|world| {
        let output = world.option(&["--serve", "8080"]).sh("echo RAN");
        assert_eq!(output.status.code(), Some(0), "{}", text(&output));
        assert!(!text(&output).contains("port 8080"), "{}", text(&output));
    });
}

#[test]
fn sockets_of_agents_and_daemons_are_out_of_reach() {
    in_both_tiers(|world| {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
        // Sockets as those of docker, an ssh agent, a session bus, X11 and tmux.
        for name in ["docker.sock", "agent.1", "bus", "X0", "default"] {
            let (stream, datagram) = (dir.path().join(name), dir.path().join(format!("{name}.d")));
            let _stream = UnixListener::bind(&stream).unwrap();
            let _datagram = UnixDatagram::bind(&datagram).unwrap();
            for path in [&stream, &datagram] {
                fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
            }
            let (stream, datagram) = (stream.display(), datagram.display());
            for reach in [
                format!("socket.socket(socket.AF_UNIX).connect('{stream}')"),
                format!("socket.socket(socket.AF_UNIX, 2).sendto(b'x', '{datagram}') and 0"),
                format!("socket.socketpair(1, 2)[0].sendto(b'x', '{datagram}') and 0"),
            ] {
                assert_eq!(python(&world, &reach, false), 0, "{reach}");
                assert!(python(&world, &reach, true) < 0, "{reach} as {:?}", world.who);
            }
        }
        let name = format!("clash-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let _abstract = UnixListener::bind_addr(&address).unwrap();
        let reach = format!("socket.socket(socket.AF_UNIX).connect('\\0{name}')");
        assert_eq!(python(&world, &reach, false), 0);
        assert!(python(&world, &reach, true) < 0, "abstract, as {:?}", world.who);
    });
}
