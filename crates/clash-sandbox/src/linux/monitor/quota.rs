//! The number of names that a command may make: files, directories and links. A removed
//! name is given back, so a build that makes and removes temporary files for hours does not
//! reach the limit.

use rustix::io::Errno;

#[derive(Debug)]
pub(super) struct NameQuota {
    most: Option<u64>,
    made: u64,
}

impl NameQuota {
    /// `None`: no limit.
    pub(super) fn new(most: Option<u64>) -> Self {
        Self { most, made: 0 }
    }

    /// Refuses to make one more name.
    pub(super) fn check(&self) -> Result<(), Errno> {
        if self.most.is_some_and(|most| self.made >= most) { Err(Errno::DQUOT) } else { Ok(()) }
    }

    pub(super) fn made_one(&mut self) {
        self.made = self.made.saturating_add(1);
    }

    pub(super) fn removed_one(&mut self) {
        self.made = self.made.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removed_names_are_given_back_at_most_once() {
        let mut quota = NameQuota::new(Some(1));
        quota.removed_one();
        quota.made_one();
        assert_eq!(quota.check(), Err(Errno::DQUOT));
        quota.removed_one();
        assert_eq!(quota.check(), Ok(()));
        assert_eq!(NameQuota::new(None).check(), Ok(()));
    }
}
