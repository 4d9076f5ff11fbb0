//! The few facts about this machine that the direct plan depends on, from three
//! system calls and no files: they are asked for at every launch. [`crate::probe`]
//! is the thorough and slow sibling.

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// The kernel's Landlock ABI; 0 means there is none.
    pub landlock_abi: u32,
    /// Whether seccomp filters that answer with an error number can be installed.
    pub seccomp: bool,
    /// Whether the effective user is root.
    pub root: bool,
}

impl Host {
    #[cfg(target_os = "linux")]
    pub fn quick() -> Self {
        Self {
            landlock_abi: crate::linux::sys::landlock_abi(),
            seccomp: crate::linux::sys::seccomp_errno_available(),
            root: rustix::process::geteuid().is_root(),
        }
    }

    /// Nothing is enforced elsewhere yet, so the planner will refuse.
    #[cfg(not(target_os = "linux"))]
    pub fn quick() -> Self {
        Self { landlock_abi: 0, seccomp: false, root: false }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn the_quick_look_is_repeatable() {
        assert_eq!(Host::quick(), Host::quick());
    }
}
