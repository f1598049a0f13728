use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::poll;

/// A process with its output in a file. It is killed when dropped.
#[derive(Debug)]
pub struct Process {
    name: &'static str,
    child: Child,
    output: PathBuf,
    /// Released after the child is gone.
    _leash: Leash,
}

impl Process {
    /// Starts the process, its output in `NAME.log` in the folder.
    pub fn start(name: &'static str, mut command: Command, folder: &Path) -> Self {
        let output = folder.join(format!("{name}.log"));
        let file = std::fs::File::create(&output).unwrap();
        // A group of its own: an interrupt at the terminal is for the tests, whose end ends the process.
        command.stdin(Stdio::null()).stdout(file.try_clone().unwrap()).stderr(file).process_group(0);
        let child = command.spawn().unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
        let leash = Leash::new("kill -KILL \"$1\"", &child.id().to_string());
        Self { name, child, output, _leash: leash }
    }

    /// What the process has written so far.
    pub fn output(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.output).unwrap()).into_owned()
    }

    /// Fails with the end of the output where the process has ended by itself.
    pub fn must_run(&mut self) {
        if let Some(status) = self.child.try_wait().unwrap() {
            panic!("{} has ended by itself ({status}):\n{}", self.name, self.last_lines());
        }
    }

    /// Sends SIGTERM, as a kubelet does, and returns after how long the process has ended. It fails where it has not
    /// after the limit, when a kubelet would kill it.
    pub fn terminate(&mut self, limit: Duration) -> Duration {
        let began = Instant::now();
        assert!(Command::new("kill").arg(self.child.id().to_string()).status().unwrap().success());
        poll::until(&format!("{} has ended", self.name), limit, || match self.child.try_wait().unwrap() {
            Some(_) => Ok(began.elapsed()),
            None => Err(self.last_lines()),
        })
    }

    /// The end of the output, for messages.
    pub fn last_lines(&self) -> String {
        let output = self.output();
        let lines: Vec<_> = output.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // There is nothing worth an orderly end. Neither can fail but for a process that is gone.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a shell command when this process ends without having dropped the leash: killed, interrupted, or
/// at its regular end, which drops no statics.
///
/// It is a shell that waits for a line on a pipe. It gets one from `drop`, and an end of file otherwise.
#[derive(Debug)]
pub struct Leash(Child);

impl Leash {
    /// The command sees the argument as `$1`.
    pub fn new(command: &str, argument: &str) -> Self {
        let script = format!("read -r released || {{ {command}; }}");
        let shell = Command::new("sh")
            .args(["-c", &script, "sh", argument])
            .stdin(Stdio::piped())
            // Whoever reads our output must not wait for the shell.
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn();
        Self(shell.unwrap_or_else(|error| panic!("cannot start sh: {error}")))
    }
}

impl Drop for Leash {
    fn drop(&mut self) {
        if let Some(mut pipe) = self.0.stdin.take() {
            let _ = pipe.write_all(b"released\n");
        }
        let _ = self.0.wait();
    }
}
