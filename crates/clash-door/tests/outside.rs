//! The door program outside a room.

use std::process::Command;

#[test]
fn a_door_outside_a_room_runs_nothing() {
    let door = Command::new(env!("CARGO_BIN_EXE_clash-door")).arg("push").output().unwrap();
    assert_eq!(door.status.code(), Some(126));
    let said = String::from_utf8(door.stderr).unwrap();
    assert!(said.ends_with("clash-door was not run: its door does not open (No such file or directory (os error 2))\n"), "{said}");
}
