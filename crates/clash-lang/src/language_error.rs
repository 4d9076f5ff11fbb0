//! The error of the builders: a form of a policy that has no meaning where it stands.

use clash_policy::PolicySpan;

/// A mistake in a policy. Without a place of its own it is shown at the running call.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message}")]
pub(crate) struct LanguageError {
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
    /// The place, if it is known better than by the running call.
    pub(crate) span: Option<PolicySpan>,
    /// A string of the source. The place is its next occurrence after the running call.
    pub(crate) near: Option<String>,
}

pub(crate) type LanguageResult<T> = Result<T, LanguageError>;

impl LanguageError {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), hint: None, span: None, near: None }
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Sets the place.
    pub(crate) fn at(mut self, span: &PolicySpan) -> Self {
        self.span = Some(span.clone());
        self
    }

    /// Names a string of the source, which the message shall point at. Has no effect if
    /// [`Self::at`] sets the place.
    pub(crate) fn near(mut self, text: impl Into<String>) -> Self {
        self.near = Some(text.into());
        self
    }
}

impl From<LanguageError> for starlark::Error {
    fn from(mistake: LanguageError) -> Self {
        Self::new_other(mistake)
    }
}
