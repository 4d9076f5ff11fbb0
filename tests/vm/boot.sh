#!/usr/bin/env bash
# Boots a real kernel under software emulation with a small root made of busybox and the files
# you add, runs a script in it as root, and ends with the script's exit status.
#
#   boot.sh [--kernel FILE] [--append 'kernel arguments'] [--root DIR] [--add SRC[:DEST]]… [--memory MiB]
#           [--timeout S] SCRIPT
#
# --kernel   a bzImage; default: Debian's 6.1 cloud kernel, fetched once with apt into $VM_CACHE
# --append   more kernel arguments: lsm=…, kernel.unprivileged_userns_clone=0 goes into the script
# --root     a whole root directory (say, from debootstrap) to start from instead of an empty one
# --add      a file or directory to put into the root (static programs: the root has no libraries)
#
# Needs: qemu-system-x86, busybox-static, cpio (all Debian packages). One boot takes three to four seconds.
set -euo pipefail
cache="${VM_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/clash-vm}"
kernel='' append='' root='' memory=1024 limit=300 add=()
while [ $# -gt 1 ]; do
    case "$1" in
        --kernel) kernel=$2 ;; --append) append=$2 ;; --root) root=$2 ;; --add) add+=("$2") ;;
        --memory) memory=$2 ;; --timeout) limit=$2 ;; *) echo "boot.sh: unknown option $1" >&2; exit 64 ;;
    esac
    shift 2
done
script=${1:?boot.sh: no script}
if [ -z "$kernel" ]; then
    kernel=$(ls "$cache"/boot/vmlinuz-6.1* 2>/dev/null | tail -1 || true)
    if [ -z "$kernel" ]; then
        mkdir -p "$cache" && (
            cd "$cache"
            package=$(apt-cache search --names-only '^linux-image-6\.1\.0-[0-9]+-cloud-amd64-unsigned$' | sort -V | tail -1 | cut -d' ' -f1)
            apt-get download -qq "$package" >&2
            dpkg -x linux-image-*.deb . && rm linux-image-*.deb
        )
        kernel=$(ls "$cache"/boot/vmlinuz-6.1* | tail -1)
    fi
fi
work=$(mktemp -d /var/tmp/vm-XXXXXX); trap 'rm -rf "$work"' EXIT
mkdir "$work/root"
[ -z "$root" ] || cp -a "$root/." "$work/root/"
cd "$work/root"
mkdir -p bin sbin usr/bin usr/lib lib lib64 proc sys dev tmp etc root home/u/p var/tmp run
cp "$(command -v busybox)" bin/busybox
for applet in $(bin/busybox --list); do [ -e "bin/$applet" ] || ln -s busybox "bin/$applet"; done
[ -e usr/bin/env ] || ln -s ../../bin/busybox usr/bin/env
[ -e etc/passwd ] || printf 'root:x:0:0::/root:/bin/sh\nu:x:1000:1000::/home/u:/bin/sh\n' > etc/passwd
[ -e etc/group ] || printf 'root:x:0:\nu:x:1000:\n' > etc/group
for entry in "${add[@]}"; do
    from=${entry%%:*} to=${entry#*:}; [ "$to" != "$entry" ] || to=bin/
    mkdir -p "$(dirname "./$to.")"; cp -a "$OLDPWD/$from" "./$to" 2>/dev/null || cp -a "$from" "./$to"
done
cp "$OLDPWD/$script" script 2>/dev/null || cp "$script" script
chmod 755 script
cat > init <<'I'
#!/bin/busybox sh
export PATH=/bin:/sbin:/usr/bin:/usr/sbin HOME=/root
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev
mkdir -p /dev/pts /dev/shm; mount -t devpts devpts /dev/pts; mount -t tmpfs t /tmp; chmod 1777 /tmp
mount -t cgroup2 cgroup2 /sys/fs/cgroup 2>/dev/null
ip link set lo up 2>/dev/null; chown -R 1000:1000 /home/u
/script; echo "VM-EXIT:$?"
poweroff -f
I
chmod 755 init
find . | cpio -o -H newc --quiet | gzip -1 > ../image
cd ..
timeout "$limit" qemu-system-x86_64 -accel tcg -cpu max -m "$memory" -nographic -no-reboot -kernel "$kernel" -initrd image \
    -append "console=ttyS0 quiet panic=1 lsm=landlock,yama,integrity,apparmor $append" < /dev/null 2>&1 |
    tr -d '\r' | sed -u '1,/Booting from ROM/d' | tee "$work/log" | grep -v '^VM-EXIT:' || true
status=$(sed -n 's/^VM-EXIT://p' "$work/log"); exit "${status:-99}"
