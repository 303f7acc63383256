//! Work that a client's text may make too long or too deep: on a thread of its own, with a deep stack, and not waited for beyond a limit.

use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{mpsc, Arc};
use std::thread;
use std::time::Duration;

use crate::error::{Invalid, Result};

/// Touched only as far as it is used. llguidance recurses once for each of a grammar's rules.
const STACK_BYTES: usize = 256 << 20;
/// Threads that nobody waits for any more; they cannot be stopped, only go on to their end.
const MAX_OVERDUE: usize = 2;
static OVERDUE: AtomicUsize = AtomicUsize::new(0);

const RUNNING: u8 = 0;
const FINISHED: u8 = 1;
const ABANDONED: u8 = 2;

/// What `job` returns; an error if it takes longer than `limit`, or if too many before it still run. Panics if it panicked.
pub fn run<T: Send + 'static>(limit: Duration, job: impl FnOnce() -> T + Send + 'static) -> Result<T> {
    if OVERDUE.load(Ordering::SeqCst) >= MAX_OVERDUE {
        return Err(Invalid("others that take too long are still being compiled: try again later".into()));
    }
    let state = Arc::new(AtomicU8::new(RUNNING));
    let (send, receive) = mpsc::sync_channel(1);
    let of_thread = Finish(state.clone());
    let thread = thread::Builder::new().name("grammar".into()).stack_size(STACK_BYTES).spawn(move || {
        let _finish = of_thread;
        let _ = send.send(job());
    })?;
    match receive.recv_timeout(limit) {
        Ok(result) => {
            let _ = thread.join(); // it is at its end: what it wrote is seen from here on
            Ok(result)
        }
        Err(mpsc::RecvTimeoutError::Disconnected) => panic!("it panicked"),
        Err(mpsc::RecvTimeoutError::Timeout) => {
            OVERDUE.fetch_add(1, Ordering::SeqCst);
            if state.swap(ABANDONED, Ordering::SeqCst) == FINISHED {
                OVERDUE.fetch_sub(1, Ordering::SeqCst);
            }
            Err(Invalid(format!("it takes longer than {} s to compile", limit.as_secs())))
        }
    }
}

struct Finish(Arc<AtomicU8>);

impl Drop for Finish {
    fn drop(&mut self) {
        if self.0.swap(FINISHED, Ordering::SeqCst) == ABANDONED {
            OVERDUE.fetch_sub(1, Ordering::SeqCst);
        }
    }
}
