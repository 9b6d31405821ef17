//! Clocks. This is the only module that reads the wall clock and the boot-time clock, which leases use ([`Moment`]).
//!
//! Code that decides by time or records a time is given a [`Clock`]; other code is passed a [`Timestamp`]. Queue and
//! store servers use their own clocks, which a test cannot move. [`Clock::movable`] is for the embedded backend.

use chrono::Utc;
use rustix::time::{ClockId, clock_gettime};
use std::future::Future;
use std::ops::Add;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

use types::timestamp::Timestamp;

/// The current wall-clock time of this machine.
#[allow(clippy::disallowed_methods)]
pub fn now() -> Timestamp {
    Timestamp::from_millis(Utc::now().timestamp_millis())
}

/// The clock of a part of the engine. A part receives its clock on construction, so that tests can move its time ahead.
/// Cheap to clone. Clones share the offset.
#[derive(Clone, Debug, Default)]
pub struct Clock {
    /// How far the clock is ahead of the machine's clocks; `None` if it cannot be moved.
    ahead: Option<Arc<watch::Sender<Duration>>>,
}

impl Clock {
    /// The machine's clocks. They cannot be moved.
    pub fn system() -> Self {
        Self::default()
    }

    /// A clock that tests can move. It starts at the machine's time.
    pub fn movable() -> Self {
        Self { ahead: Some(Arc::new(watch::Sender::new(Duration::ZERO))) }
    }

    /// Moves this clock and all its clones ahead, and wakes the sleepers that become due. No effect on
    /// [`Clock::system`].
    pub fn advance(&self, by: Duration) {
        if let Some(ahead) = &self.ahead {
            ahead.send_modify(|ahead| *ahead += by);
        }
    }

    fn offset(&self) -> Duration {
        self.ahead.as_ref().map_or(Duration::ZERO, |ahead| *ahead.borrow())
    }

    /// The wall-clock time of this clock.
    pub fn now(&self) -> Timestamp {
        now().plus(self.offset())
    }

    /// The current [`Moment`] of this clock.
    pub fn moment(&self) -> Moment {
        moment() + self.offset()
    }

    /// Waits for `duration`. Cancel safe.
    pub async fn sleep(&self, duration: Duration) {
        self.sleep_until(self.moment() + duration).await;
    }

    /// Returns the result of `work`, or `None` if it takes longer than `limit`. `work` is then dropped.
    pub fn timeout<T>(&self, limit: Duration, work: impl Future<Output = T>) -> impl Future<Output = Option<T>> {
        // Boxed, because an async function would store it twice: as an argument and while it is polled.
        let work = Box::pin(work);
        async move {
            tokio::select! {
                biased;
                done = work => Some(done),
                () = self.sleep(limit) => None,
            }
        }
    }

    /// Waits until `until`. Cancel safe.
    pub async fn sleep_until(&self, until: Moment) {
        let mut moved = self.ahead.as_ref().map(|ahead| ahead.subscribe());
        loop {
            let left = self.moment().until(until);
            if left.is_zero() {
                return;
            }
            let Some(moved) = &mut moved else { return tokio::time::sleep(left).await };
            tokio::select! {
                () = tokio::time::sleep(left) => {}
                // `changed` fails only if the sender is dropped, and this clock owns the sender.
                _ = moved.changed() => {}
            }
        }
    }
}

/// The clock behind [`Moment`]. On Linux, `std::time::Instant` does not count the time of a suspend.
#[cfg(target_os = "linux")]
const BOOT_TIME: ClockId = ClockId::Boottime;
#[cfg(not(target_os = "linux"))]
const BOOT_TIME: ClockId = ClockId::Monotonic;

/// A point on a clock that never goes back and also counts the time in which the process is stopped or the machine is
/// suspended. A lease expires by the server's clock during that time, and its holder must notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(Duration);

/// The current moment of this machine.
pub fn moment() -> Moment {
    let time = clock_gettime(BOOT_TIME);
    let (seconds, nanos) = (u64::try_from(time.tv_sec), u32::try_from(time.tv_nsec));
    Moment(Duration::new(seconds.unwrap_or(0), nanos.unwrap_or(0)))
}

impl Moment {
    /// This moment minus `duration`, saturating.
    pub fn minus(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(duration))
    }

    /// The time since this moment; zero if it is in the future.
    pub fn elapsed(self) -> Duration {
        self.until(moment())
    }

    /// The duration from `self` to `later`; zero if `later` is earlier than `self`.
    pub fn until(self, later: Self) -> Duration {
        later.0.saturating_sub(self.0)
    }
}

impl Add<Duration> for Moment {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(duration))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn a_moment_counts_the_time_since_the_boot() {
        let uptime = std::fs::read_to_string("/proc/uptime").unwrap();
        let uptime = Duration::from_secs_f64(uptime.split(' ').next().unwrap().parse().unwrap());
        let now = moment().0;
        // The file shows the clock that counts suspends, in hundredths of a second.
        assert!(
            now + Duration::from_millis(20) > uptime && now < uptime + Duration::from_secs(5),
            "{now:?} {uptime:?}"
        );
    }

    /// After a suspend of an hour the two clocks differ by an hour. A time namespace produces the same difference.
    #[test]
    #[cfg(target_os = "linux")]
    fn a_moment_counts_an_hour_of_suspend() {
        let suspended = |program: &std::path::Path, args: &[&str]| {
            let mut command = std::process::Command::new("unshare");
            command.args(["--user", "--map-root-user", "--time", "--boottime", "3600", "--fork"]);
            command.arg(program).args(args).output().is_ok_and(|ended| ended.status.success())
        };
        // Not every system lets users create a time namespace.
        if suspended("true".as_ref(), &[]) {
            let test = "clock::tests::a_moment_counts_the_time_since_the_boot";
            assert!(suspended(&std::env::current_exe().unwrap(), &["--exact", test]));
        }
    }

    #[tokio::test]
    async fn who_sleeps_wakes_up_when_the_clock_is_moved() {
        let (clock, hour) = (Clock::movable(), Duration::from_secs(3_600));
        let (then, at) = (clock.now(), clock.moment());
        let mover = clock.clone();
        tokio::join!(clock.sleep(hour), async move {
            mover.advance(hour / 2);
            tokio::task::yield_now().await;
            mover.advance(hour / 2);
        });
        assert!(then.until(clock.now()) >= hour && at.until(clock.moment()) >= hour);
        assert!(Clock::system().now().until(clock.now()) > hour / 2, "other clocks are unaffected");
    }
}
