//! Visits to doors: the service that answers them, and the rooms that are kept for further
//! commands. The types are those of [`linux::doors`](crate::linux); other systems have no
//! rooms, and types of the same names without content.

#[cfg(target_os = "linux")]
pub use crate::linux::doors::{DoorService, DoorVisit, KeepOffer, KeptRoom};
#[cfg(not(target_os = "linux"))]
pub use elsewhere::{DoorService, DoorVisit, KeepOffer, KeptRoom};

#[cfg(not(target_os = "linux"))]
mod elsewhere {
    use std::os::fd::OwnedFd;

    use crate::door::{DoorVisitor, KeptCommand};

    /// Decides about visits to doors.
    pub trait DoorService {
        /// Answers one visit, in a process of its own. The process ends when this returns.
        fn open(&self, visit: DoorVisit);
    }

    /// A process of a room at a door. Rooms exist on Linux only, so no visit comes.
    #[derive(Debug)]
    pub struct DoorVisit;

    impl DoorVisit {
        pub fn read(&self) -> std::io::Result<DoorVisitor> {
            Err(std::io::ErrorKind::Unsupported.into())
        }

        pub fn has_ended(&self) -> bool {
            true
        }

        pub fn run_here(&self, _: &OwnedFd) {}

        pub fn run_named(&self, _: &std::ffi::OsStr) {}

        pub fn refuse(&self, _: &DoorVisitor, _: &str) {}

        pub fn follow(
            self,
            _: DoorVisitor,
            _: &std::path::Path,
            _: impl FnOnce(&DoorVisitor, Option<KeepOffer>),
        ) {
        }

        pub fn claim_room(&mut self, _: u64) -> Option<KeptRoom> {
            None
        }

        pub fn run_in(
            &self,
            _: KeptRoom,
            visitor: DoorVisitor,
            _: &KeptCommand,
        ) -> Option<DoorVisitor> {
            Some(visitor)
        }
    }

    impl DoorVisitor {
        pub fn may_share_room(&self) -> bool {
            false
        }
    }

    /// Rooms exist on Linux only.
    #[derive(Debug)]
    pub struct KeepOffer;

    impl KeepOffer {
        pub fn with_tag(self, _: u64) -> Self {
            self
        }

        pub fn with_seal(self, _: u64) -> Self {
            self
        }
    }

    #[derive(Debug)]
    pub struct KeptRoom;

    impl KeptRoom {
        pub fn seal(&self) -> u64 {
            0
        }

        pub fn retire(self) {}
    }
}
