//! A limit on the connections of each address, so that one client cannot take all of them. It only counts.
//!
//! What it is not: the limit on all connections together (see `listen`), and the client's address behind a balancer
//! (see `proxy_protocol`).

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The log warns about full addresses at most this often.
const SAID_AGAIN: Duration = Duration::from_secs(60);

/// Counts the connections of each address.
#[derive(Debug)]
pub(crate) struct AddressLimit {
    /// The limit of one address; 0: no limit.
    most: usize,
    counts: Mutex<HashMap<IpAddr, usize>>,
    said: Mutex<Option<Instant>>,
}

/// One counted connection. Dropping it frees the slot.
#[derive(Debug)]
pub(crate) struct AddressSlot {
    limit: Arc<AddressLimit>,
    of: IpAddr,
}

impl AddressLimit {
    pub(crate) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most, counts: Mutex::default(), said: Mutex::default() })
    }

    /// Counts one more connection of this address. `None`: the address has reached its limit.
    pub(crate) fn enter(self: &Arc<Self>, address: IpAddr) -> Option<AddressSlot> {
        let of = holder(address);
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(of).or_default();
        if self.most != 0 && *count >= self.most {
            return None;
        }
        *count += 1;
        Some(AddressSlot { limit: Arc::clone(self), of })
    }

    /// The warning about a refused connection. `None`: there was one a moment ago, about this address or another. A
    /// client that tries again and again must not fill the log.
    pub(crate) fn warning(&self, address: IpAddr, now: Instant) -> Option<String> {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if said.is_some_and(|at| now.saturating_duration_since(at) < SAID_AGAIN) {
            return None;
        }
        *said = Some(now);
        let (of, most) = (holder(address), self.most);
        let of = if of.is_ipv6() { format!("{of}/64") } else { of.to_string() };
        Some(format!(
            "{of} has {most} connections and may open no more; if many machines share this address (NAT), raise \
             --connections-per-address; if it is a load balancer, let it speak PROXY protocol and name it with \
             --proxy-protocol-from"
        ))
    }
}

impl Drop for AddressSlot {
    fn drop(&mut self) {
        let mut counts = self.limit.counts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(&self.of) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                counts.remove(&self.of);
            }
        }
    }
}

/// The address that is counted. A client with one IPv6 address usually has its whole /64.
fn holder(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => {
            let [a, b, c, d, ..] = v6.segments();
            IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn an_address_has_so_many_places_and_others_have_theirs() {
        let limit = AddressLimit::new(2);
        let enter = |text| limit.enter(ip(text));
        let (first, _second) = (enter("10.0.0.1").unwrap(), enter("10.0.0.1").unwrap());
        assert!(enter("10.0.0.1").is_none() && enter("::ffff:10.0.0.1").is_none());
        let _other = enter("10.0.0.2").unwrap();
        drop(first);
        drop(enter("10.0.0.1").unwrap());
        let _six = (enter("fd00::1").unwrap(), enter("fd00::2").unwrap());
        assert!(enter("fd00::3:0:0:1").is_none(), "a /64 is one holder");
        assert!(enter("fd00:0:0:1::1").is_some());
    }

    #[test]
    fn a_full_address_is_told_with_the_remedy_and_at_most_once_a_minute() {
        let (limit, start) = (AddressLimit::new(7), Instant::now());
        let said = |text: &str, after: u64| limit.warning(ip(text), start + Duration::from_secs(after));
        let first = said("fd00::17", 0).unwrap();
        assert!(first.starts_with("fd00::/64 has 7 connections"), "{first}");
        assert!(first.contains("--connections-per-address") && first.contains("--proxy-protocol-from"));
        assert_eq!((said("fd00::17", 1), said("10.0.0.1", 59)), (None, None));
        assert!(said("::ffff:10.0.0.1", 60).unwrap().starts_with("10.0.0.1 has 7 connections"));
    }

    #[test]
    fn nothing_is_kept_of_those_who_left_and_zero_is_no_limit() {
        let limit = AddressLimit::new(0);
        let all: Vec<AddressSlot> = (0..100).map(|_| limit.enter(ip("10.0.0.1")).unwrap()).collect();
        drop(all);
        assert!(limit.counts.lock().unwrap().is_empty());
    }
}
