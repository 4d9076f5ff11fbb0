//! The messages that `clash` sends to `clash-compile`.

use std::path::PathBuf;

use clash_policy::rule::LayerKind;
use serde::{Deserialize, Serialize};

use crate::path_text;

/// One run of `clash-compile` answers one request.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(tag = "command", rename_all = "kebab-case")]
pub enum CompilerRequest {
    /// Compile a stack of layers. The product is the compiled image.
    Compile(CompileRequest),
    /// Document the language and its library, or the builder, module or sandbox of this
    /// name. The product is a [`crate::report::LanguageDocs`].
    Docs { name: Option<String> },
    /// Send the sources of the library. The product is a map from a module's name, for
    /// example `@clash//rust.star`, to its text.
    Library,
}

impl CompilerRequest {
    /// True if a person waits for the answer, and not a hook that must reply in time.
    #[must_use]
    pub fn is_interactive(&self) -> bool {
        match self {
            Self::Compile(request) => request.warnings,
            Self::Docs { .. } | Self::Library => true,
        }
    }
}

/// A stack of layers to compile.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
pub struct CompileRequest {
    /// The policy files that may exist, highest precedence first. The compiler adds the
    /// built-in layer.
    pub layers: Vec<LayerFile>,
    /// Texts to compile in place of files, before `clash` writes them.
    pub replaced_texts: Vec<ReplacedText>,
    /// The directories for `from_claude_settings()`. Without them it reads nothing.
    pub claude_settings: Option<ClaudeSettingsDirs>,
    /// True if the compiler shall also look for probable mistakes.
    pub warnings: bool,
}

/// A policy file that may exist.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct LayerFile {
    #[serde(with = "layer_word")]
    pub layer: LayerKind,
    /// Only the project's layer can be untrusted.
    pub trust: TrustSource,
    #[serde(with = "path_text")]
    pub path: PathBuf,
}

/// How the compiler finds out whether the user trusts a project's policy.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum TrustSource {
    /// The policy counts as trusted, for example to show the user its effect.
    Assumed,
    /// The policy is trusted if this directory has a record with its digest.
    Records(#[serde(with = "path_text")] PathBuf),
}

/// A text in the place of a file, which need not exist.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct ReplacedText {
    #[serde(with = "path_text")]
    pub path: PathBuf,
    pub text: String,
}

/// The directories with Claude Code's settings.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct ClaudeSettingsDirs {
    /// The user's directory, for example `~/.claude`.
    #[serde(with = "path_text")]
    pub user: PathBuf,
    /// The project, which has its settings in `.claude`.
    #[serde(with = "path_text")]
    pub project: PathBuf,
}

/// A layer by the word that users read, for example `built-in`.
mod layer_word {
    use clash_policy::rule::LayerKind;
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(kind: &LayerKind, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(kind.word())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<LayerKind, D::Error> {
        let word = String::deserialize(from)?;
        let known = LayerKind::ALL.into_iter().find(|kind| kind.word() == word);
        known.ok_or_else(|| D::Error::custom(format!("no layer is called `{word}`")))
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::os::unix::ffi::OsStringExt;

    use super::*;

    #[test]
    fn a_request_comes_back_as_it_was_sent() {
        let odd = PathBuf::from(OsString::from_vec(b"/home/\xff/app".to_vec()));
        for layer in LayerKind::ALL {
            let request = CompilerRequest::Compile(CompileRequest {
                layers: vec![
                    LayerFile { layer, trust: TrustSource::Assumed, path: odd.clone() },
                    LayerFile {
                        layer,
                        trust: TrustSource::Records(odd.clone()),
                        path: "/a b".into(),
                    },
                ],
                replaced_texts: vec![ReplacedText { path: odd.clone(), text: "x\n".to_owned() }],
                claude_settings: Some(ClaudeSettingsDirs {
                    user: "/u".into(),
                    project: odd.clone(),
                }),
                warnings: true,
            });
            let text = serde_json::to_string(&request).unwrap();
            assert_eq!(serde_json::from_str::<CompilerRequest>(&text).unwrap(), request, "{text}");
        }
    }

    #[test]
    fn an_unknown_layer_or_command_is_refused() {
        let layer = r#"{"command":"compile","layers":[{"layer":"x","trust":"assumed","path":"/a"}],"replaced_texts":[],"claude_settings":null,"warnings":false}"#;
        for wrong in [layer, r#"{"command":"run"}"#, "{}", ""] {
            assert!(serde_json::from_str::<CompilerRequest>(wrong).is_err(), "{wrong}");
        }
    }
}
