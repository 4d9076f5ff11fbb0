//! A hook program that fails in every way the tests know.

use std::fs;
use std::os::unix::fs::symlink;

use crate::support::{Machine, clash, program};

/// Replaces the program that hooks call. The new one fails as the command asks, for example
/// at `mode-hangs`, and calls clash otherwise. The launcher stays, so that only the hook's
/// guard can block.
pub(super) fn install_breakable_hook(m: &Machine) {
    let own = m.state().join("bin/clash");
    fs::remove_file(&own).unwrap();
    for launcher in ["clash-sh", "clash-shell"].map(|name| m.state().join("bin").join(name)) {
        fs::remove_file(&launcher).unwrap();
        symlink(clash(), &launcher).unwrap();
    }
    let stub = format!(
        "#!/bin/sh\ninput=$(cat)\ncase $input in *mode-fails*) exit 1;; *mode-crashes*) kill -SEGV $$;; \
         *mode-is-killed*) kill -KILL $$;; *mode-hangs*) exec sleep 60;; *mode-chatters*) echo debug; echo '{{}}'; exit;; \
         *mode-goes*) rm '{}'; exit 1;; esac\nprintf %s \"$input\" | {} \"$@\"\n",
        own.display(),
        clash().display()
    );
    program(&own, &stub);
    shorten_limits(m);
}

/// The ways in which the hook fails. At the last there is no program.
pub(super) const FAILURES: [&str; 7] =
    ["fails", "crashes", "is-killed", "hangs", "chatters", "goes", "is-missing"];

/// The time limit in a shortened command line.
pub(crate) const SHORT_LIMIT: &str = " -k 1 5 ";

/// Shortens the time limit of every installed command line from twenty to five seconds.
fn shorten_limits(m: &Machine) {
    let mut found = 0;
    for file in [
        ".claude/settings.json",
        ".cline/hooks/PreToolUse",
        ".codex/config.toml",
        ".config/kilo/plugin/clash.js",
        ".config/opencode/plugins/clash.js",
        ".copilot/hooks/clash.json",
        ".factory/settings.json",
        ".gemini/settings.json",
        ".pi/agent/extensions/clash.ts",
        ".qwen/settings.json",
    ] {
        let file = m.home().join(file);
        let Ok(text) = fs::read_to_string(&file) else { continue };
        let hasty = text.replace(" -k 1 20 ", SHORT_LIMIT).replace("LIMIT = 20000", "LIMIT = 5000");
        if hasty != text {
            fs::write(&file, hasty).unwrap();
            found += 1;
        }
    }
    assert!(found > 0);
}
