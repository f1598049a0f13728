use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

/// How often a connection looks whether it still is one.
const LOOK: Duration = Duration::from_millis(20);

const WHOLE: u8 = 0;
const CUT: u8 = 1;
const MUTE: u8 = 2;

/// A TCP proxy before the API server, for the processes that are to lose it while the tests do not.
#[derive(Debug)]
pub struct Line {
    address: SocketAddr,
    state: Arc<State>,
}

#[derive(Debug)]
struct State {
    now: AtomicU8,
    /// Connections with a lower number are dead, and do not know it.
    dead_below: AtomicU64,
    next: AtomicU64,
}

impl Line {
    /// A whole line to the API server of the URL.
    pub fn to(url: &str) -> Self {
        let target: SocketAddr = url.trim_start_matches("https://").parse().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(State { now: AtomicU8::new(WHOLE), dead_below: 0.into(), next: 0.into() });
        let shared = Arc::clone(&state);
        // Ends with the process: nothing wakes it from its accept.
        thread::spawn(move || {
            for caller in listener.incoming().flatten() {
                // Cut is a port at which nobody listens, as nearly as one that listens can be it.
                if shared.now.load(Ordering::SeqCst) == CUT {
                    continue;
                }
                let Ok(callee) = TcpStream::connect(target) else { continue };
                let number = shared.next.fetch_add(1, Ordering::SeqCst);
                for (from, to) in [(&caller, &callee), (&callee, &caller)] {
                    let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    let state = Arc::clone(&shared);
                    thread::spawn(move || carry(from, to, number, &state));
                }
            }
        });
        Self { address, state }
    }

    /// The API server's URL by this line.
    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// Ends all connections and takes no other.
    pub fn cut(&self) {
        self.state.now.store(CUT, Ordering::SeqCst);
        // Until the last of them has looked.
        thread::sleep(LOOK * 5);
    }

    /// Takes connections, and carries nothing.
    pub fn mute(&self) {
        self.state.now.store(MUTE, Ordering::SeqCst);
    }

    /// Carries everything again, on the connections that were mute as well.
    pub fn heal(&self) {
        self.state.now.store(WHOLE, Ordering::SeqCst);
    }

    /// From now on nothing comes through the connections that there are, and nobody is told. Others are not concerned.
    pub fn lose_connections(&self) {
        self.state.dead_below.store(self.state.next.load(Ordering::SeqCst), Ordering::SeqCst);
        thread::sleep(LOOK * 5);
    }
}

/// Carries bytes from one side to the other for as long as the line lets them.
fn carry(mut from: TcpStream, mut to: TcpStream, number: u64, state: &State) {
    from.set_read_timeout(Some(LOOK)).unwrap();
    let mut bytes = [0; 16384];
    loop {
        let now = state.now.load(Ordering::SeqCst);
        let dead = number < state.dead_below.load(Ordering::SeqCst);
        if now == CUT && !dead {
            break;
        }
        if now == MUTE || dead {
            thread::sleep(LOOK);
            continue;
        }
        match from.read(&mut bytes) {
            Ok(0) => break,
            Ok(count) => {
                if to.write_all(&bytes[..count]).is_err() {
                    break;
                }
            }
            Err(error) if [ErrorKind::WouldBlock, ErrorKind::TimedOut].contains(&error.kind()) => {}
            Err(_) => break,
        }
    }
    for side in [from, to] {
        // One that is gone already is as good.
        let _ = side.shutdown(std::net::Shutdown::Both);
    }
}
