//! Keep-alive process: a shell beside each process, which keeps MPICH's mpirun from ending the other processes
//! before they have reported which one died.
//!
//! That mpirun has a proxy on each host. A proxy kills all its processes (SIGKILL, by process group) as soon as
//! one's connection to it ends (`PMI_FD`), or when it finds one killed, which it checks for after each output. Once
//! all outputs of its processes are closed it reports their ends; mpirun then ends the other hosts and reads no
//! more of their output. All that takes milliseconds.
//!
//! The keep-alive shell is in a process group of its own, inherits both outputs and the connection, and holds them
//! open for `HOLD_SECS` after its process has died. Until then the proxy notices nothing. The other processes do,
//! through their liveness connections (`kernels/src/comm/liveness.rs`), and their reports reach mpirun first, since
//! a proxy forwards an output before it checks who was killed. Other output in the millisecond between would wake
//! the proxy too early; then only processes on other hosts can report. Source: MPICH 5.0.2, src/pm/hydra/proxy:
//! `main` in pmip.c, `pmi_cb` in pmip_cb.c, `PMIP_bcast_signal` in pmip_pg.c.

use std::io::Write;
use std::process::{Child, Command, Stdio};

use crate::dist::launch::Launcher;

/// Seconds that the shell outlives a process that died: liveness messages take milliseconds, on a busy host longer.
const HOLD_SECS: u32 = 2;

/// The keep-alive shell of this process. Dropping it is a regular end: the shell exits at once.
pub(crate) struct KeepAlive {
    shell: Child,
}

impl KeepAlive {
    /// Starts one if the launcher needs it, before MPI opens anything that must not be inherited. The text is a
    /// warning to log if it could not be started.
    pub(crate) fn under(launcher: &Launcher) -> (Option<KeepAlive>, Option<String>) {
        if !launcher.ends_all_at_once() {
            return (None, None);
        }
        match KeepAlive::holding(HOLD_SECS, Stdio::inherit()) {
            Ok(keep_alive) => (Some(keep_alive), None),
            Err(error) => {
                let lack =
                    "if this process dies, mpirun may end the others before they can report it";
                (None, Some(format!("no keep-alive shell ({error}); {lack}")))
            }
        }
    }

    fn holding(secs: u32, output: Stdio) -> std::io::Result<KeepAlive> {
        let mut shell = Command::new("/bin/sh");
        let script = format!("read word || exec sleep {secs}");
        shell
            .args(["-c", &script])
            .stdin(Stdio::piped())
            .stdout(output);
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut shell, 0);
        let shell = shell.spawn()?;
        Ok(KeepAlive { shell })
    }
}

impl Drop for KeepAlive {
    fn drop(&mut self) {
        // a shell that has already exited holds nothing open
        if let Some(mut word) = self.shell.stdin.take() {
            let _ = word.write_all(b"bye\n");
        }
        let _ = self.shell.wait();
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::time::Instant;

    use super::*;

    /// Seconds until no process holds the output of a keep-alive shell of `secs`, whose parent ends as `end` says.
    fn held(secs: u32, end: impl FnOnce(KeepAlive)) -> f64 {
        let mut keep_alive = KeepAlive::holding(secs, Stdio::piped()).unwrap();
        let mut output = keep_alive.shell.stdout.take().unwrap();
        let since = Instant::now();
        end(keep_alive);
        assert_eq!(output.read_to_string(&mut String::new()).unwrap(), 0);
        since.elapsed().as_secs_f64()
    }

    #[test]
    fn a_guardian_holds_outputs_after_a_death_and_not_after_a_good_bye() {
        assert!(held(60, drop) < 30.0);
        // as the end of its process closes it
        let died = held(2, |mut keep_alive| drop(keep_alive.shell.stdin.take()));
        assert!(died >= 2.0, "{died} s");
    }

    #[test]
    fn a_guardian_is_out_of_reach_of_what_kills_its_process_group() {
        let group_of = |pid: u32| -> u32 {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
            // after the name: state, parent, group
            let (_, rest) = stat.rsplit_once(')').unwrap();
            rest.split_whitespace().nth(2).unwrap().parse().unwrap()
        };
        let keep_alive = KeepAlive::holding(0, Stdio::null()).unwrap();
        assert_eq!(group_of(keep_alive.shell.id()), keep_alive.shell.id());
    }
}
