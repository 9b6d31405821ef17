//! The one place that reads the wall clock, and the clock of leases, which counts a suspend of the machine: [`Moment`].
//! Code that decides by time, or records a time, is given a [`Clock`]; everything else is handed a [`Timestamp`]. A queue or store
//! on servers uses their clocks, which cannot be moved from here: [`Clock::movable`] is for the embedded backend.

use chrono::Utc;
use rustix::time::{ClockId, clock_gettime};
use std::future::Future;
use std::ops::Add;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

use types::timestamp::Timestamp;

/// The current wall-clock time of this process.
#[allow(clippy::disallowed_methods)]
pub fn now() -> Timestamp {
    Timestamp::from_millis(Utc::now().timestamp_millis())
}

/// The clock of a part of the engine. It is given to the part when that is made, so that tests can move its time ahead. Cheap to
/// clone; clones move together.
#[derive(Clone, Debug, Default)]
pub struct Clock {
    /// How far it is ahead; `None` for the machine's clocks.
    ahead: Option<Arc<watch::Sender<Duration>>>,
}

impl Clock {
    /// The machine's clocks.
    pub fn system() -> Self {
        Self::default()
    }

    /// A clock that tests can move; until then it shows the machine's time.
    pub fn movable() -> Self {
        Self { ahead: Some(Arc::new(watch::Sender::new(Duration::ZERO))) }
    }

    /// Moves the clock ahead, with all its clones, and wakes the sleepers that are due. The machine's clocks cannot be moved.
    pub fn advance(&self, by: Duration) {
        if let Some(ahead) = &self.ahead {
            ahead.send_modify(|ahead| *ahead += by);
        }
    }

    fn ahead(&self) -> Duration {
        self.ahead.as_ref().map_or(Duration::ZERO, |ahead| *ahead.borrow())
    }

    /// The wall-clock time.
    pub fn now(&self) -> Timestamp {
        now().plus(self.ahead())
    }

    /// The current moment.
    pub fn moment(&self) -> Moment {
        moment() + self.ahead()
    }

    /// Returns after `duration`.
    pub async fn sleep(&self, duration: Duration) {
        self.sleep_until(self.moment() + duration).await;
    }

    /// The result of `work`; `None` if it takes longer than `limit`.
    pub fn within<T>(&self, limit: Duration, work: impl Future<Output = T>) -> impl Future<Output = Option<T>> {
        // Boxed, since an async function would hold it twice.
        let work = Box::pin(work);
        async move {
            tokio::select! {
                biased;
                done = work => Some(done),
                () = self.sleep(limit) => None,
            }
        }
    }

    /// Returns at `until`.
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
                // The sender is this clock's own, so it is there.
                _ = moved.changed() => {}
            }
        }
    }
}

/// The clock of [`Moment`]. `std::time::Instant` stands still on Linux while the machine is suspended.
#[cfg(target_os = "linux")]
const BOOT_TIME: ClockId = ClockId::Boottime;
#[cfg(not(target_os = "linux"))]
const BOOT_TIME: ClockId = ClockId::Monotonic;

/// A point on a clock that never goes back, and that counts on while the process is stopped or its machine suspended. A
/// lease is over by the server's clock then, and its holder must see that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(Duration);

/// The current moment.
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

    /// How long ago it was; zero when it is still to come.
    pub fn elapsed(self) -> Duration {
        self.until(moment())
    }

    /// How long from `self` until `later`; zero when `later` has passed.
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
        // The file has hundredths of a second of the clock that counts suspends.
        assert!(
            now + Duration::from_millis(20) > uptime && now < uptime + Duration::from_secs(5),
            "{now:?} {uptime:?}"
        );
    }

    /// On such a machine the clocks differ by an hour, and so they do in a time namespace.
    #[test]
    #[cfg(target_os = "linux")]
    fn a_moment_counts_an_hour_of_suspend() {
        let suspended = |program: &std::path::Path, args: &[&str]| {
            let mut command = std::process::Command::new("unshare");
            command.args(["--user", "--map-root-user", "--time", "--boottime", "3600", "--fork"]);
            command.arg(program).args(args).output().is_ok_and(|ended| ended.status.success())
        };
        // Not every system lets its users make one.
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
        assert!(Clock::system().now().until(clock.now()) > hour / 2, "nobody else's has moved");
    }
}
