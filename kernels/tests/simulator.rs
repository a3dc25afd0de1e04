//! The simulated GPU judged by itself: its self-tests, among them kernels that must fail.

use std::path::Path;
use std::process::Command;

#[test]
fn the_simulator_finds_every_planted_mistake_and_computes_what_is_right() {
    let Some(folder) = kernels::testing::simulator::folder() else {
        return;
    };
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("sim/selftest.sh");
    let output = Command::new("sh").arg(script).arg(folder).output();
    let output = output.unwrap_or_else(|error| panic!("sh starts: {error}"));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let last = text.lines().last().unwrap_or_default().to_owned();
    let passed: usize = last
        .split(' ')
        .next()
        .and_then(|count| count.parse().ok())
        .unwrap_or(0);
    assert!(
        output.status.success() && last.ends_with(" passed, 0 failed") && passed >= 40,
        "{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
}
