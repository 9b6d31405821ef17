//! The table of the lanes that this worker drives, with their leases and the deliveries that wait in them.

use crate::execution::CancelReason;
use base::clock::{Clock, Moment};
use std::collections::{BTreeMap, HashMap};
use std::ops::RangeInclusive;
use std::sync::{Mutex, MutexGuard, PoisonError};
use storage::queue::{Delivery, DeliveryToken, Message};
use storage::store::records::LeaseKey;
use tokio_util::sync::CancellationToken;
use types::timestamp::Timestamp;

/// The result of [`Lanes::offer`].
#[derive(Debug, PartialEq)]
pub(super) enum Offer {
    /// The worker drives the lane already; the driver will process the message.
    Joined(Message),
    /// The lane is new; the caller must drive it.
    Start,
}

/// The position up to which a lane is processed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LanePosition {
    /// Creation time of the stream to which the sequence belongs.
    pub(super) stream: Option<Timestamp>,
    pub(super) seq: u64,
    /// Time at which the stream stored the last processed message. A message that was stored later is not covered, even
    /// if its sequence is lower.
    pub(super) at: Option<Timestamp>,
}

impl LanePosition {
    fn covers(&self, seq: u64, waiting: &WaitingDelivery) -> bool {
        seq <= self.seq && Some(waiting.stream) == self.stream && Some(waiting.at) <= self.at
    }
}

/// Removes a lane from the table if its driver panics. Its lease is then no longer renewed, and the queue redelivers
/// its messages.
pub(super) struct RemoveOnPanic<'l> {
    pub(super) lanes: &'l Lanes,
    pub(super) session_id: &'l str,
}

impl Drop for RemoveOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.lanes.remove(self.session_id);
        }
    }
}

/// The lanes that this worker drives, by session id.
pub(super) struct Lanes {
    pub(super) clock: Clock,
    by_session: Mutex<HashMap<String, Lane>>,
}

#[derive(Default)]
struct Lane {
    /// The message that started the lane. Later messages are read from the stream in their turn, so a flooded lane
    /// keeps only one message in memory.
    first: Option<Message>,
    /// Deliveries by sequence, to be acknowledged once the lane is processed up to them.
    waiting: BTreeMap<u64, WaitingDelivery>,
    epoch: Option<u64>,
    /// The time until which the lease is certain to last, whatever the store's clock shows. Stays correct when the
    /// machine was suspended.
    until: Option<Moment>,
    /// A commit that may release the lease is in progress.
    commit_in_flight: bool,
    lost: CancellationToken,
    /// The sequence of the current turn.
    turn: u64,
    /// The current turn began while a human had the conversation. A takeover does not cancel it: there is nothing to
    /// take over.
    with_human: bool,
    /// Cancels the current turn.
    cancelled: CancellationToken,
    /// Sequence and reason of the last cancellation that is known to wait in the lane.
    cancel: Option<(u64, CancelReason)>,
}

impl Lane {
    /// Whether a command at this sequence cancels the current turn.
    fn is_cancelled_by(&self, seq: u64, reason: &CancelReason) -> bool {
        self.turn < seq && !(self.with_human && reason.is_takeover())
    }
}

/// A delivery that waits in its lane.
struct WaitingDelivery {
    token: DeliveryToken,
    /// Creation time of the message's stream, and the time at which the stream stored the message.
    stream: Timestamp,
    at: Timestamp,
    /// Last time at which the ack wait of the delivery started, at the queue.
    extended_at: Moment,
}

impl Lanes {
    /// Creates an empty table.
    pub(super) fn new(clock: Clock) -> Self {
        Self { clock, by_session: Mutex::default() }
    }

    /// Adds a delivery to its lane. Starts the lane if the table does not have it.
    pub(super) fn offer(&self, delivery: Delivery) -> Offer {
        let mut lanes = self.lock();
        let Delivery { message, token, .. } = delivery;
        let (session_id, seq) = (message.session_id.clone(), message.seq);
        let (stream, at) = (message.stream, message.at);
        let (offer, first) = match lanes.contains_key(&session_id) {
            true => (Offer::Joined(message), None),
            false => (Offer::Start, Some(message)),
        };
        let lane = lanes.entry(session_id).or_default();
        lane.first = first.or(lane.first.take());
        lane.waiting.insert(seq, WaitingDelivery { token, stream, at, extended_at: self.clock.moment() });
        offer
    }

    /// Returns the sequence of the lane's first waiting delivery, with its message if the table keeps it. Removes the
    /// lane and returns `None` if no delivery waits; a later delivery then starts the lane again.
    pub(super) fn next_or_end(&self, session_id: &str) -> Option<(u64, Option<Message>)> {
        let mut lanes = self.lock();
        let lane = lanes.get_mut(session_id)?;
        lane.epoch = None;
        lane.until = None;
        lane.lost = CancellationToken::new();
        if let Some((seq, _)) = lane.waiting.first_key_value() {
            return Some((*seq, lane.first.take().filter(|message| message.seq == *seq)));
        }
        lanes.remove(session_id);
        None
    }

    /// Records that the lease is held and certain to last until `until`. The returned token is cancelled when the lease
    /// is lost.
    pub(super) fn lease_acquired(&self, session_id: &str, epoch: u64, until: Moment) -> CancellationToken {
        let mut lanes = self.lock();
        let lane = lanes.entry(session_id.to_owned()).or_default();
        lane.epoch = Some(epoch);
        lane.until = Some(until);
        lane.commit_in_flight = false;
        lane.lost.clone()
    }

    /// Records that the turn of this sequence runs. The returned token is cancelled when an operator cancels the turn,
    /// or takes the conversation over unless it is `with_human` already.
    pub(super) fn start_turn(&self, session_id: &str, seq: u64, with_human: bool) -> CancellationToken {
        let mut lanes = self.lock();
        let lane = lanes.entry(session_id.to_owned()).or_default();
        (lane.turn, lane.with_human) = (seq, with_human);
        if lane.cancelled.is_cancelled() {
            lane.cancelled = CancellationToken::new();
        }
        if lane.cancel.as_ref().is_some_and(|(cancel, reason)| lane.is_cancelled_by(*cancel, reason)) {
            lane.cancelled.cancel();
        }
        lane.cancelled.clone()
    }

    /// Records a cancellation that waits in the lane at `seq`. It cancels all turns before it, including the current
    /// one.
    pub(super) fn cancel(&self, session_id: &str, seq: u64, reason: CancelReason) {
        let mut lanes = self.lock();
        let Some(lane) = lanes.get_mut(session_id) else { return };
        if lane.is_cancelled_by(seq, &reason) {
            lane.cancelled.cancel();
        }
        if lane.cancel.as_ref().is_none_or(|(known, _)| *known < seq) {
            lane.cancel = Some((seq, reason));
        }
    }

    /// The reason for which the turn of this sequence is cancelled.
    pub(super) fn cancel_reason(&self, session_id: &str, seq: u64) -> Option<CancelReason> {
        let lanes = self.lock();
        let (cancel, reason) = lanes.get(session_id)?.cancel.as_ref()?;
        (seq < *cancel).then(|| reason.clone())
    }

    /// Whether this worker drives the lane.
    pub(super) fn drives(&self, session_id: &str) -> bool {
        self.lock().contains_key(session_id)
    }

    /// Records that the lease was renewed and is certain to last until `until`.
    pub(super) fn lease_renewed(&self, held: &LeaseKey, until: Moment) {
        let mut lanes = self.lock();
        if let Some(lane) = lanes.get_mut(&held.session_id).filter(|lane| lane.epoch == Some(held.epoch)) {
            lane.until = Some(until);
        }
    }

    /// Records that a commit which may release the lease is in progress.
    pub(super) fn commit_started(&self, session_id: &str) {
        if let Some(lane) = self.lock().get_mut(session_id) {
            lane.commit_in_flight = true;
        }
    }

    /// Whether the lease is certain to last now. False if the process was paused or could not renew it.
    pub(super) fn certainly_holds(&self, held: &LeaseKey) -> bool {
        let lanes = self.lock();
        let lane = lanes.get(&held.session_id).filter(|lane| lane.epoch == Some(held.epoch));
        lane.and_then(|lane| lane.until).is_some_and(|until| self.clock.moment() < until)
    }

    /// The time until which the lease is certain to last.
    pub(super) fn lease_certain_until(&self, session_id: &str) -> Option<Moment> {
        self.lock().get(session_id)?.until
    }

    /// The highest sequence that waits in the lane, or 0.
    pub(super) fn highest_waiting(&self, session_id: &str) -> u64 {
        let lanes = self.lock();
        lanes.get(session_id).and_then(|lane| lane.waiting.last_key_value()).map_or(0, |(seq, _)| *seq)
    }

    /// The time at which the stream stored the oldest message that waits in the lane.
    pub(super) fn oldest_waiting(&self, session_id: &str) -> Option<Timestamp> {
        self.lock().get(session_id)?.waiting.values().map(|waiting| waiting.at).min()
    }

    /// Removes and returns the deliveries up to this position, for acknowledgement.
    pub(super) fn take_processed(&self, session_id: &str, position: &LanePosition) -> Vec<DeliveryToken> {
        self.take_if(session_id, |seq, waiting| position.covers(seq, waiting))
    }

    /// Removes and returns the deliveries in this range, whose messages are no longer in the stream, for
    /// acknowledgement.
    pub(super) fn take_range(&self, session_id: &str, range: RangeInclusive<u64>) -> Vec<DeliveryToken> {
        self.take_if(session_id, |seq, _| range.contains(&seq))
    }

    fn take_if(&self, session_id: &str, taken: impl Fn(u64, &WaitingDelivery) -> bool) -> Vec<DeliveryToken> {
        let mut lanes = self.lock();
        let Some(lane) = lanes.get_mut(session_id) else { return Vec::new() };
        lane.waiting.extract_if(.., |seq, waiting| taken(*seq, waiting)).map(|(_, waiting)| waiting.token).collect()
    }

    /// Removes and returns one delivery, for acknowledgement.
    pub(super) fn take_delivery(&self, session_id: &str, seq: u64) -> Option<DeliveryToken> {
        self.lock().get_mut(session_id)?.waiting.remove(&seq).map(|waiting| waiting.token)
    }

    /// Removes the lane and returns its waiting deliveries, which the caller releases.
    pub(super) fn remove(&self, session_id: &str) -> Vec<DeliveryToken> {
        let lane = self.lock().remove(session_id);
        lane.into_iter().flat_map(|lane| lane.waiting.into_values().map(|waiting| waiting.token)).collect()
    }

    /// The leases that are not certain to last until `until`.
    pub(super) fn leases_expiring_before(&self, until: Moment) -> Vec<LeaseKey> {
        let lanes = self.lock();
        let expiring = lanes.iter().filter(|(_, lane)| lane.until.is_some_and(|ends| ends < until));
        let held = expiring
            .filter_map(|(session_id, lane)| Some(LeaseKey { session_id: session_id.clone(), epoch: lane.epoch? }));
        held.collect()
    }

    /// The waiting deliveries whose ack wait was last extended before `since`.
    pub(super) fn stale_deliveries(&self, since: Moment) -> Vec<(String, u64, DeliveryToken)> {
        let lanes = self.lock();
        let stale = |session_id: &String, lane: &Lane| {
            let stale = lane.waiting.iter().filter(|(_, waiting)| waiting.extended_at < since);
            stale.map(|(seq, waiting)| (session_id.clone(), *seq, waiting.token.clone())).collect::<Vec<_>>()
        };
        lanes.iter().flat_map(|(session_id, lane)| stale(session_id, lane)).collect()
    }

    /// Records that the ack wait of these deliveries was extended at `at`.
    pub(super) fn mark_extended<'d>(&self, deliveries: impl Iterator<Item = (&'d str, u64)>, at: Moment) {
        let mut lanes = self.lock();
        for (session_id, seq) in deliveries {
            if let Some(waiting) = lanes.get_mut(session_id).and_then(|lane| lane.waiting.get_mut(&seq)) {
                waiting.extended_at = at;
            }
        }
    }

    /// Tells the lane's driver that its lease is lost. Returns false if the driver has released the lease meanwhile.
    pub(super) fn lease_lost(&self, held: &LeaseKey) -> bool {
        let lanes = self.lock();
        let lane = lanes.get(&held.session_id).filter(|lane| lane.epoch == Some(held.epoch) && !lane.commit_in_flight);
        lane.inspect(|lane| lane.lost.cancel()).is_some()
    }

    /// Tells the lane's driver that its session is being deleted.
    pub(super) fn abandon(&self, session_id: &str) {
        self.lock().get(session_id).filter(|lane| lane.epoch.is_some()).inspect(|lane| lane.lost.cancel());
    }

    pub(super) fn len(&self) -> usize {
        self.lock().len()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Lane>> {
        self.by_session.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use futures::FutureExt;
    use std::panic::AssertUnwindSafe;
    use std::time::Duration;

    pub(in crate::worker) fn delivery(session_id: &str, seq: u64) -> Delivery {
        let message = Message {
            session_id: session_id.into(),
            seq,
            stream: Timestamp::from_millis(0),
            payload: Default::default(),
            msg_id: None,
            default_id: String::new(),
            at: Timestamp::from_millis(i64::try_from(seq).unwrap()),
            trace: None,
        };
        Delivery { message, token: DeliveryToken(format!("{session_id}-{seq}")), more_pending: false }
    }

    fn tokens(tokens: Vec<DeliveryToken>) -> Vec<String> {
        tokens.into_iter().map(|token| token.0).collect()
    }

    #[test]
    fn only_what_was_handled_is_passed_whatever_its_sequence() {
        let (lanes, at) = (Lanes::new(Clock::system()), Timestamp::from_millis);
        for (seq, stream, taken) in [(3, 0, 900), (4, 0, 4), (5, 0, 5), (6, 700, 6), (7, 0, 7)] {
            let mut delivery = delivery("a", seq);
            (delivery.message.stream, delivery.message.at) = (at(stream), at(taken));
            lanes.offer(delivery);
        }
        let passed = LanePosition { stream: Some(at(0)), seq: 6, at: Some(at(6)) };
        assert_eq!(
            tokens(lanes.take_processed("a", &passed)),
            ["a-4", "a-5"],
            "neither a message stored later nor one of another stream"
        );
        assert_eq!(lanes.next_or_end("a").unwrap().0, 3);
        assert_eq!(tokens(lanes.take_range("a", 6..=6)), ["a-6"]);
        assert_eq!(tokens(lanes.take_processed("a", &LanePosition::default())), [""; 0]);
        assert_eq!(lanes.highest_waiting("a"), 7);
    }

    #[tokio::test]
    async fn a_lane_whose_driver_panics_is_driven_no_more() {
        let lanes = Lanes::new(Clock::system());
        for (session_id, panics) in [("a", true), ("b", false)] {
            lanes.offer(delivery(session_id, 1));
            lanes.lease_acquired(session_id, 1, Clock::system().moment());
            let driving = async {
                let _remove_on_panic = RemoveOnPanic { lanes: &lanes, session_id };
                assert!(!panics, "on purpose");
            };
            assert_eq!(AssertUnwindSafe(driving).catch_unwind().await.is_err(), panics);
            assert_eq!(lanes.drives(session_id), !panics);
        }
        assert_eq!(lanes.leases_expiring_before(Clock::system().moment() + Duration::from_secs(1)).len(), 1);
        assert_eq!(lanes.offer(delivery("a", 2)), Offer::Start);
    }

    /// Acquires a lane for the worker `owner` with a lease of no length, like one that expired while the machine was
    /// suspended.
    #[test]
    fn only_leases_and_deliveries_that_need_it_are_renewed() {
        let lanes = Lanes::new(Clock::system());
        let now = Clock::system().moment();
        let soon = |seconds| now + Duration::from_secs(seconds);
        for (session_id, until) in [("a", soon(2)), ("b", soon(5))] {
            assert_eq!(lanes.offer(delivery(session_id, 1)), Offer::Start);
            lanes.lease_acquired(session_id, 1, until);
        }
        let held = |session_id: &str| LeaseKey { session_id: session_id.into(), epoch: 1 };
        assert_eq!(lanes.leases_expiring_before(soon(4)), [held("a")]);
        lanes.lease_renewed(&held("a"), soon(6));
        assert_eq!(lanes.leases_expiring_before(soon(4)), []);

        assert!(lanes.stale_deliveries(now).is_empty(), "both were just delivered");
        assert_eq!(lanes.stale_deliveries(soon(1)).len(), 2);
        lanes.mark_extended([("a", 1)].into_iter(), soon(2));
        let stale: Vec<_> =
            lanes.stale_deliveries(soon(1)).into_iter().map(|(session_id, seq, _)| (session_id, seq)).collect();
        assert_eq!(stale, [("b".to_owned(), 1)]);
    }
}
