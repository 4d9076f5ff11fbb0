//! A small assembler for classic BPF, the language of seccomp filters.
//!
//! It has labels instead of counted offsets. An offset that does not fit into eight bits is
//! an error: cut off silently, it would jump elsewhere and open a hole in the filter. The
//! assembler has only the instructions that seccomp filters need: load the syscall data,
//! compare and jump forwards, return.

/// One instruction, laid out as the kernel's `struct sock_filter`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BpfInstruction {
    pub(crate) code: u16,
    pub(crate) jt: u8,
    pub(crate) jf: u8,
    pub(crate) k: u32,
}

/// A jump target in the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BpfLabel(usize);

/// The next instruction after a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JumpTarget {
    Next,
    Label(BpfLabel),
}

/// A comparison with the accumulator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BpfTest {
    Equal(u32),
    AtLeast(u32),
    Above(u32),
    AnyBit(u32),
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BpfError {
    #[error("filter instruction {at} jumps {by} instructions, more than 255")]
    TooFar { at: usize, by: usize },
    #[error("filter instruction {at} jumps backwards or nowhere")]
    Nowhere { at: usize },
    #[error("filter has {0} instructions, more than the kernel takes")]
    TooLong(usize),
}

/// The kernel's BPF_MAXINSNS.
const MAX_INSTRUCTIONS: usize = 4096;

pub(crate) const LOAD: u16 = 0x20; // BPF_LD | BPF_W | BPF_ABS
pub(crate) const AND: u16 = 0x54; // BPF_ALU | BPF_AND | BPF_K
pub(crate) const JEQ: u16 = 0x15; // BPF_JMP | BPF_JEQ | BPF_K
pub(crate) const JGT: u16 = 0x25;
pub(crate) const JGE: u16 = 0x35;
pub(crate) const JSET: u16 = 0x45;
pub(crate) const RET: u16 = 0x06; // BPF_RET | BPF_K

/// A program under construction.
#[derive(Debug, Default)]
pub(crate) struct BpfAssembler {
    code: Vec<(BpfInstruction, JumpTarget, JumpTarget)>,
    /// The position of each label, when it is placed.
    labels: Vec<Option<usize>>,
}

impl BpfAssembler {
    /// A new label, not yet placed.
    pub(crate) fn label(&mut self) -> BpfLabel {
        self.labels.push(None);
        BpfLabel(self.labels.len() - 1)
    }

    /// Puts a label before the next instruction.
    pub(crate) fn place(&mut self, label: BpfLabel) {
        let here = self.code.len();
        if let Some(slot) = self.labels.get_mut(label.0) {
            *slot = Some(here);
        }
    }

    /// Loads a 32-bit word of the syscall data.
    pub(crate) fn load(&mut self, offset: u32) {
        self.push(LOAD, offset, JumpTarget::Next, JumpTarget::Next);
    }

    /// Keeps only these bits of the loaded word.
    pub(crate) fn and(&mut self, mask: u32) {
        self.push(AND, mask, JumpTarget::Next, JumpTarget::Next);
    }

    /// Ends the program with this answer.
    pub(crate) fn ret(&mut self, value: u32) {
        self.push(RET, value, JumpTarget::Next, JumpTarget::Next);
    }

    /// Adds a test of the loaded word, with the targets for yes and no.
    pub(crate) fn jump(&mut self, test: BpfTest, yes: JumpTarget, no: JumpTarget) {
        let (code, k) = match test {
            BpfTest::Equal(k) => (JEQ, k),
            BpfTest::AtLeast(k) => (JGE, k),
            BpfTest::Above(k) => (JGT, k),
            BpfTest::AnyBit(k) => (JSET, k),
        };
        self.push(code, k, yes, no);
    }

    fn push(&mut self, code: u16, k: u32, yes: JumpTarget, no: JumpTarget) {
        self.code.push((BpfInstruction { code, jt: 0, jf: 0, k }, yes, no));
    }

    /// Resolves every jump, and returns the program. Fails for a program that is too long,
    /// and for a jump backwards, too far, or to a label that was not placed.
    pub(crate) fn finish(self) -> Result<Vec<BpfInstruction>, BpfError> {
        if self.code.len() > MAX_INSTRUCTIONS {
            return Err(BpfError::TooLong(self.code.len()));
        }
        let offset = |at: usize, to: JumpTarget| -> Result<u8, BpfError> {
            let JumpTarget::Label(label) = to else { return Ok(0) };
            let target = self.labels.get(label.0).copied().flatten();
            let by = target
                .filter(|t| *t < self.code.len())
                .and_then(|t| t.checked_sub(at + 1))
                .ok_or(BpfError::Nowhere { at })?;
            u8::try_from(by).map_err(|_| BpfError::TooFar { at, by })
        };
        self.code
            .iter()
            .enumerate()
            .map(|(at, (insn, yes, no))| {
                Ok(BpfInstruction { jt: offset(at, *yes)?, jf: offset(at, *no)?, ..*insn })
            })
            .collect()
    }
}

/// Runs a program over syscall data as the kernel would.
#[cfg(test)]
pub(crate) fn interpret(program: &[BpfInstruction], data: &[u32; 16]) -> u32 {
    let mut acc = 0;
    let mut at = 0;
    loop {
        let insn = program[at];
        at += 1;
        let jump = |yes: bool| usize::from(if yes { insn.jt } else { insn.jf });
        match insn.code {
            LOAD => acc = data[insn.k as usize / 4],
            AND => acc &= insn.k,
            JEQ => at += jump(acc == insn.k),
            JGT => at += jump(acc > insn.k),
            JGE => at += jump(acc >= insn.k),
            JSET => at += jump(acc & insn.k != 0),
            RET => return insn.k,
            other => panic!("unknown instruction {other:#x}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_become_offsets() {
        let mut asm = BpfAssembler::default();
        let end = asm.label();
        asm.load(0);
        asm.jump(BpfTest::Equal(7), JumpTarget::Label(end), JumpTarget::Next);
        asm.ret(1);
        asm.place(end);
        asm.ret(2);
        let program = asm.finish().unwrap();
        assert_eq!(program[1], BpfInstruction { code: JEQ, jt: 1, jf: 0, k: 7 });
        assert_eq!(interpret(&program, &[7; 16]), 2);
        assert_eq!(interpret(&program, &[8; 16]), 1);
    }

    #[test]
    fn a_jump_over_255_instructions_is_an_error() {
        let mut asm = BpfAssembler::default();
        let end = asm.label();
        asm.jump(BpfTest::Equal(7), JumpTarget::Label(end), JumpTarget::Next);
        (0..256).for_each(|_| asm.load(0));
        asm.place(end);
        asm.ret(0);
        assert_eq!(asm.finish(), Err(BpfError::TooFar { at: 0, by: 256 }));
    }

    #[test]
    fn a_label_that_is_behind_or_nowhere_is_an_error() {
        let mut asm = BpfAssembler::default();
        let start = asm.label();
        asm.place(start);
        asm.jump(BpfTest::Equal(7), JumpTarget::Label(start), JumpTarget::Next);
        assert_eq!(asm.finish(), Err(BpfError::Nowhere { at: 0 }));

        let mut asm = BpfAssembler::default();
        let never = asm.label();
        asm.jump(BpfTest::Equal(7), JumpTarget::Label(never), JumpTarget::Next);
        asm.ret(0);
        assert_eq!(asm.finish(), Err(BpfError::Nowhere { at: 0 }));
    }
}
