//! The state of the screen, without a terminal and without files.

use crate::questions::WaitingQuestion;
use crate::rooms::RunningRoom;
use crate::story::ActionStory;
use crate::trace::TracedConnection;
use crate::ui::HomeNames;

/// The lists of the screen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum DashboardPanel {
    #[default]
    Actions,
    Rooms,
    Connections,
    Blocks,
}

impl DashboardPanel {
    pub(super) const ALL: [Self; 4] = [Self::Actions, Self::Rooms, Self::Connections, Self::Blocks];

    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Actions => "actions",
            Self::Rooms => "rooms",
            Self::Connections => "connections",
            Self::Blocks => "blocks",
        }
    }
}

/// One connection of an action.
#[derive(Clone, Debug)]
pub(super) struct ShownConnection {
    pub(super) time: u64,
    pub(super) program: String,
    pub(super) effect: String,
    pub(super) connection: TracedConnection,
}

/// One block, with the action in which it happened.
#[derive(Clone, Debug)]
pub(super) struct ShownBlock {
    pub(super) time: u64,
    pub(super) action: String,
    pub(super) what: String,
    pub(super) sentence: String,
    pub(super) grant: Option<String>,
}

/// The state of the screen.
#[derive(Debug, Default)]
pub(super) struct DashboardModel {
    pub(super) colour: bool,
    pub(super) home: HomeNames,
    pub(super) panel: DashboardPanel,
    /// The number of the selected line in its list, from its newest line on.
    pub(super) selected: usize,
    pub(super) shows_help: bool,
    /// The sessions with an action in the last ten minutes.
    pub(super) sessions: usize,
    /// The newest first, like every list here.
    pub(super) actions: Vec<ActionStory>,
    pub(super) rooms: Vec<RunningRoom>,
    pub(super) connections: Vec<ShownConnection>,
    pub(super) blocks: Vec<ShownBlock>,
    /// The oldest first: it is answered next.
    pub(super) questions: Vec<WaitingQuestion>,
    /// The result of the last answer, or a problem with clash's files.
    pub(super) notice: String,
}

impl DashboardModel {
    /// The number of lines of a list.
    pub(super) fn count(&self, panel: DashboardPanel) -> usize {
        match panel {
            DashboardPanel::Actions => self.actions.len(),
            DashboardPanel::Rooms => self.rooms.len(),
            DashboardPanel::Connections => self.connections.len(),
            DashboardPanel::Blocks => self.blocks.len(),
        }
    }

    /// Moves the selection, and keeps it in its list.
    pub(super) fn select(&mut self, lines: isize) {
        let last = self.count(self.panel).saturating_sub(1);
        self.selected = self.selected.saturating_add_signed(lines).min(last);
    }

    /// Shows another list, from its newest line on.
    pub(super) fn show(&mut self, panel: DashboardPanel) {
        self.panel = panel;
        self.selected = 0;
    }

    /// The list beside the present one.
    pub(super) fn next_panel(&mut self, by: usize) {
        let all = DashboardPanel::ALL;
        let at = all.iter().position(|panel| *panel == self.panel).unwrap_or_default();
        if let Some(panel) = all.iter().cycle().nth(at + by) {
            self.show(*panel);
        }
    }
}
