//! Writes facts about a running command into the trace: refused accesses and its end.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use clash_policy::{FileCaps, Sandbox};
use clash_sandbox::witness::{CommandWitness, ObservedEnd, RefusedAccess};

use super::LauncherError;
use super::context::LaunchContext;
use crate::blocks::file_block;
use crate::trace::{
    BlockEvidence, RefusingPart, TraceError, TraceEvent, TraceRecord, TraceWriter, file_of,
};

/// The different refusals of one command that the trace keeps.
const MAX_TRACED_REFUSALS: usize = 200;

struct TraceWitness {
    sandbox: Sandbox,
    project: PathBuf,
    home: PathBuf,
    state: Mutex<WitnessState>,
}

struct WitnessState {
    /// The fields that all records have.
    record: TraceRecord,
    writer: TraceWriter,
    seen: HashSet<(PathBuf, FileCaps)>,
    /// Records that could not be written at once.
    waiting: Vec<TraceRecord>,
}

impl LaunchContext {
    /// The witness of a command in this sandbox. `None` without a session.
    pub(super) fn witness(
        &self,
        sandbox: &Sandbox,
    ) -> Result<Option<Arc<dyn CommandWitness>>, LauncherError> {
        let Some(session) = &self.session else { return Ok(None) };
        let failed = |source| TraceError { path: file_of(&session.dir), source };
        let writer = TraceWriter::open(session).map_err(failed)?;
        let record = TraceRecord {
            sandbox: Some(sandbox.name.clone()),
            ..self.new_record(session, TraceEvent::End)
        };
        let state = WitnessState { record, writer, seen: HashSet::new(), waiting: Vec::new() };
        Ok(Some(Arc::new(TraceWitness {
            sandbox: sandbox.clone(),
            project: self.project.clone(),
            home: self.dirs.home.clone(),
            state: Mutex::new(state),
        })))
    }
}

impl WitnessState {
    fn now(&self, event: TraceEvent) -> TraceRecord {
        TraceRecord { event, time: TraceRecord::of_event(event).time, ..self.record.clone() }
    }
}

impl WitnessState {
    /// Writes the record. The monitor's thread cannot open a new segment of the trace; its
    /// record then waits for the end of the command.
    fn write(&mut self, record: TraceRecord) {
        if self.writer.append(record.clone()).is_err() {
            self.waiting.push(record);
        }
    }
}

impl CommandWitness for TraceWitness {
    /// Records a refusal of the monitor, each once, at most [`MAX_TRACED_REFUSALS`].
    fn refused(&self, access: &RefusedAccess) {
        let Ok(mut state) = self.state.lock() else { return };
        let is_new = state.seen.len() < MAX_TRACED_REFUSALS
            && state.seen.insert((access.path.clone(), access.needs));
        if !is_new {
            return;
        }
        let block =
            file_block(&self.sandbox, &access.path, access.needs, &self.project, &self.home);
        let record =
            block.record(state.now(TraceEvent::Block), RefusingPart::Monitor, BlockEvidence::Seen);
        state.write(record);
    }

    fn renew(&self, starter: u32) {
        let Ok(mut state) = self.state.lock() else { return };
        state.record.pid = Some(starter);
        state.seen.clear();
    }

    /// Records what waits, and the end of the command.
    fn ended(&self, end: ObservedEnd) {
        let Ok(mut state) = self.state.lock() else { return };
        for record in std::mem::take(&mut state.waiting) {
            state.write(record);
        }
        let record = state.now(TraceEvent::End);
        let record = match end {
            ObservedEnd::Exit(status) => TraceRecord { status: Some(status), ..record },
            ObservedEnd::Signal(signal) => TraceRecord { signal: Some(signal), ..record },
            ObservedEnd::OutOfTime => {
                TraceRecord { reason: Some("its time was up".to_owned()), ..record }
            }
        };
        state.write(record);
    }
}
