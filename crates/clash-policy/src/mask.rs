//! Masks the secrets in settings files of package managers: a tool then still finds its
//! registry, and no token.
//!
//! A masked text has the length of the original. Each byte of a secret becomes `x`, or `1`
//! in a number. Line ends, quotes, keys and everything else stay byte for byte. For example,
//! `//npm.corp/:_authToken=abc` becomes `//npm.corp/:_authToken=xxx`. References such as
//! `${NPM_TOKEN}` stay: they are no secrets.
//!
//! A reader masks too much rather than too little: comments are read like settings, and a
//! name that could be that of a secret counts. A text that a reader does not understand is
//! an error, never a copy.

mod canvas;
mod json;
mod lines;
mod names;
mod netrc;
mod shapes;
mod xml;

use canvas::MaskCanvas;

/// Larger files are no settings.
pub const MAX_MASKED_BYTES: usize = 1 << 20;

/// The syntax of a settings file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MaskSyntax {
    /// `key = value`, with sections and continued lines: npm, pip, Go.
    Ini,
    /// `key=value`, `key: value` or `key value`: Gradle, yarn 1.
    Properties,
    Yaml,
    /// YAML in which a key with a host's name has a secret: Bundler.
    BundlerYaml,
    Toml,
    Netrc,
    Xml,
    Json,
    /// JSON in which every text is a secret: Composer's `auth.json`.
    SecretJson,
}

/// The reason why a text has no masked copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MaskError {
    #[error("it is larger than {MAX_MASKED_BYTES} bytes")]
    TooLarge,
    #[error("it is no plain text")]
    Binary,
    #[error("clash cannot read its syntax")]
    Malformed,
}

/// Names of files with their syntax. A name with a slash also needs that directory.
const KNOWN_NAMES: &[(&str, MaskSyntax)] = &[
    (".npmrc", MaskSyntax::Ini),
    ("npmrc", MaskSyntax::Ini),
    ("pnpm/rc", MaskSyntax::Ini),
    (".yarnrc", MaskSyntax::Properties),
    (".yarnrc.yml", MaskSyntax::Yaml),
    (".bunfig.toml", MaskSyntax::Toml),
    ("pip.conf", MaskSyntax::Ini),
    ("uv.toml", MaskSyntax::Toml),
    ("pypoetry/config.toml", MaskSyntax::Toml),
    (".cargo/config.toml", MaskSyntax::Toml),
    (".cargo/config", MaskSyntax::Toml),
    ("$CARGO_HOME/config.toml", MaskSyntax::Toml),
    ("$CARGO_HOME/config", MaskSyntax::Toml),
    (".netrc", MaskSyntax::Netrc),
    ("go/env", MaskSyntax::Ini),
    ("settings.xml", MaskSyntax::Xml),
    ("gradle.properties", MaskSyntax::Properties),
    ("NuGet.Config", MaskSyntax::Xml),
    ("nuget.config", MaskSyntax::Xml),
    (".gemrc", MaskSyntax::Yaml),
    ("gem/gemrc", MaskSyntax::Yaml),
    (".bundle/config", MaskSyntax::BundlerYaml),
    ("composer/config.json", MaskSyntax::Json),
    (".composer/config.json", MaskSyntax::Json),
    ("$COMPOSER_HOME/config.json", MaskSyntax::Json),
    ("composer/auth.json", MaskSyntax::SecretJson),
    (".composer/auth.json", MaskSyntax::SecretJson),
    ("$COMPOSER_HOME/auth.json", MaskSyntax::SecretJson),
];

impl MaskSyntax {
    /// The syntax of a file by its path as a policy writes it, for example `$HOME/.npmrc`.
    /// `None` for a file that clash cannot mask.
    pub fn of_path(path: &str) -> Option<Self> {
        let known = |name: &str| {
            path.strip_suffix(name).is_some_and(|before| before.is_empty() || before.ends_with('/'))
        };
        KNOWN_NAMES.iter().find(|(name, _)| known(name)).map(|(_, syntax)| *syntax)
    }
}

/// The last names of all paths that can be masked.
pub fn known_names() -> impl Iterator<Item = &'static str> {
    KNOWN_NAMES.iter().map(|(name, _)| *name)
}

/// A copy of the text without its secrets, of the same length.
pub fn mask(syntax: MaskSyntax, text: &[u8]) -> Result<Vec<u8>, MaskError> {
    if text.len() > MAX_MASKED_BYTES {
        return Err(MaskError::TooLarge);
    }
    // UTF-16 has zero bytes in every ASCII text.
    if text.contains(&0) {
        return Err(MaskError::Binary);
    }
    let mut canvas = MaskCanvas::new(text);
    match syntax {
        MaskSyntax::Ini
        | MaskSyntax::Properties
        | MaskSyntax::Yaml
        | MaskSyntax::BundlerYaml
        | MaskSyntax::Toml => lines::mask_lines(&mut canvas, syntax),
        MaskSyntax::Netrc => netrc::mask_netrc(&mut canvas),
        MaskSyntax::Xml => xml::mask_xml(&mut canvas)?,
        MaskSyntax::Json => json::mask_json(&mut canvas, false)?,
        MaskSyntax::SecretJson => json::mask_json(&mut canvas, true)?,
    }
    shapes::mask_shapes(&mut canvas);
    Ok(canvas.finish())
}

#[cfg(test)]
mod tests;
