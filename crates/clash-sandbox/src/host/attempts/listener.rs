//! Attempts with seccomp: a filter, and a listener that answers with a descriptor.

use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, WaitOptions, waitpid};

use super::{AtStep, FailedStep, in_child};
use crate::linux::bpf::{self, BpfInstruction};
use crate::linux::seccomp;
use crate::linux::sys::{self, ForkSide};

/// Installs the filter of sandboxes, and checks that it refuses a new user namespace.
pub(super) fn try_filter() -> Result<(), FailedStep> {
    rustix::thread::set_no_new_privs(true).at(0)?;
    let program = seccomp::filter(seccomp::FilterSurface::default())
        .map_err(|_| FailedStep { step: 1, errno: 0 })?;
    sys::install_filter(&program, 0).at(2)?;
    match sys::unshare(libc::CLONE_NEWUSER) {
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => Ok(()),
        _ => Err(FailedStep { step: 3, errno: 0 }),
    }
}

/// The trapped call. It is harmless, and nothing else here makes it.
const TRAPPED_CALL: libc::c_long = libc::SYS_getpriority;

/// Has the same address in a child.
static POINTED_AT: u8 = 1;

/// Answers a call of another process with a descriptor, as the monitor does, and reads that
/// process's memory.
pub(super) fn try_listener() -> Result<(), FailedStep> {
    rustix::thread::set_no_new_privs(true).at(0)?;
    let trap = [
        BpfInstruction { code: bpf::LOAD, jt: 0, jf: 0, k: 0 },
        BpfInstruction {
            code: bpf::JEQ,
            jt: 0,
            jf: 1,
            k: u32::try_from(TRAPPED_CALL).unwrap_or(u32::MAX),
        },
        BpfInstruction { code: bpf::RET, jt: 0, jf: 0, k: libc::SECCOMP_RET_USER_NOTIF },
        seccomp::ALLOW_ALL,
    ];
    let installed = sys::install_filter(&trap, sys::WITH_LISTENER).at(1)?;
    let listener = sys::listener(installed).ok_or(FailedStep { step: 1, errno: 0 })?;
    let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).at(2)?;
    match sys::fork().at(2)? {
        ForkSide::Child => {
            drop((listener, writer));
            let given = sys::trapped_call(TRAPPED_CALL);
            let told = given.is_ok_and(|fd| rustix::io::write(fd, b"!") == Ok(1));
            sys::exit_now(i32::from(!told))
        }
        ForkSide::Parent(pid) => {
            // The filter of an outer sandbox may permit the listener but not reading
            // memory.
            let read = sys::read_memory(pid, (&raw const POINTED_AT).addr() as u64, &mut [0]);
            let answered = sys::next_notice(&listener).and_then(|notice| {
                let number = sys::give(&listener, notice.id, &writer, true)?;
                sys::answer(&listener, notice.id, number.into());
                Ok(())
            });
            // Without a listener, the child no longer waits for an answer.
            drop((listener, writer));
            let mut said = [0; 1];
            let heard = rustix::io::read(&reader, &mut said);
            let _ = waitpid(Pid::from_raw(pid), WaitOptions::empty());
            read.at(5)?;
            answered.at(3)?;
            if heard == Ok(1) { Ok(()) } else { Err(FailedStep { step: 4, errno: 0 }) }
        }
    }
}

/// True if an outer listener receives the calls of this process. The kernel permits only one
/// and reports `EBUSY`. False if this cannot be told.
pub(crate) fn has_outer_listener() -> bool {
    let failed = in_child(try_listener).ok().and_then(Result::err);
    failed.is_some_and(|FailedStep { step, errno }| step == 1 && errno == libc::EBUSY)
}
