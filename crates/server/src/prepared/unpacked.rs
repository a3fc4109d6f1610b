//! One answer in memory: packed always, plain as long as machines ask for it.
//!
//! Ignition takes no gzip, so that what is sent is nearly always plain; packed, it is a tenth. With many pools, of which
//! few boot machines at a time, the plain forms of all would be most of the memory.
//!
//! Guarantees: a request for an answer that was asked for lately costs a look-up; the plain forms of others are
//! [`LIMIT`] together, whatever the number of pools and versions. Answers under way keep theirs until they are sent; all
//! that are under way, and those who ask meanwhile, share one.
//!
//! What it is not: how an answer is made (see `prepare`), and which there are (see `board`).

use crate::prepared::prepare::{Prepared, unpack};
use http::HeaderValue;
use hyper::body::Bytes;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Plain forms that are kept, in bytes: about five pools of usual size, more than boot machines at once. The one that was
/// asked for last is kept in any case.
const LIMIT: usize = 2 << 20;

/// A prepared answer with its header values made.
#[derive(Debug)]
pub(crate) struct Reply {
    /// The plain form's tag.
    pub(crate) etag: HeaderValue,
    /// The packed form, where packing pays.
    pub(crate) gzip: Option<Packed>,
    /// How long the plain form is.
    length: usize,
    plain: Mutex<Plain>,
    /// When it was asked for last, in requests.
    used: AtomicU64,
}

/// The plain form.
#[derive(Debug, Default)]
struct Plain {
    /// Where it is kept at hand.
    kept: Option<Arc<Vec<u8>>>,
    /// Where somebody has it: slow machines take minutes.
    shared: Weak<Vec<u8>>,
}

impl Plain {
    fn keep(&mut self, body: Vec<u8>) -> Arc<Vec<u8>> {
        let body = Arc::new(body);
        self.shared = Arc::downgrade(&body);
        self.kept = Some(Arc::clone(&body));
        body
    }
}

/// A plain form that is being sent.
struct Sent(Arc<Vec<u8>>);

impl AsRef<[u8]> for Sent {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// The packed form.
#[derive(Debug)]
pub(crate) struct Packed {
    pub(crate) body: Bytes,
    pub(crate) etag: HeaderValue,
}

impl Reply {
    /// Keeps what was prepared, packed where that is possible.
    pub(crate) fn new(prepared: Prepared) -> Self {
        let Prepared { version: _, body, gzip, etag, gzip_etag, dropped: _ } = prepared;
        // Hex digits and quotes are always a header value.
        let tag = |etag: &str| HeaderValue::from_str(etag).unwrap_or(HeaderValue::from_static("\"0\""));
        let gzip = gzip.map(|g| Packed { body: Bytes::from(g), etag: tag(&gzip_etag) });
        let length = body.len();
        let mut plain = Plain::default();
        if gzip.is_none() {
            plain.keep(body);
        }
        Self { etag: tag(&etag), gzip, length, plain: Mutex::new(plain), used: AtomicU64::new(0) }
    }
}

/// The answers whose plain form is at hand.
#[derive(Debug)]
pub(crate) struct UnpackedCache {
    limit: usize,
    /// Counts requests.
    clock: AtomicU64,
    at_hand: Mutex<Vec<Weak<Reply>>>,
}

impl Default for UnpackedCache {
    fn default() -> Self {
        Self { limit: LIMIT, clock: AtomicU64::default(), at_hand: Mutex::default() }
    }
}

impl UnpackedCache {
    /// The plain form. Those who ask for one that is not at hand wait for the first of them to unpack it.
    ///
    /// # Errors
    /// A packed form that is broken, which none is.
    pub(crate) fn plain(&self, reply: &Arc<Reply>) -> io::Result<Bytes> {
        reply.used.store(self.clock.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        let mut plain = reply.plain.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(body) = &plain.kept {
            return Ok(Bytes::from_owner(Sent(Arc::clone(body))));
        }
        let body = if let Some(body) = plain.shared.upgrade() {
            plain.kept = Some(Arc::clone(&body));
            body
        } else {
            let packed = reply.gzip.as_ref().map(|g| g.body.as_ref()).unwrap_or_default();
            plain.keep(unpack(packed, reply.length)?)
        };
        // The lists are taken first wherever both are: not while a form is held.
        drop(plain);
        self.keep(reply);
        Ok(Bytes::from_owner(Sent(body)))
    }

    /// Takes an answer in and lets go of those that were not asked for the longest.
    fn keep(&self, new: &Arc<Reply>) {
        let mut at_hand = self.at_hand.lock().unwrap_or_else(PoisonError::into_inner);
        let mut others: Vec<Arc<Reply>> = at_hand.iter().filter_map(Weak::upgrade).collect();
        others.retain(|other| !Arc::ptr_eq(other, new));
        others.sort_by_key(|other| std::cmp::Reverse(other.used.load(Ordering::Relaxed)));
        let mut sum = new.length;
        at_hand.clear();
        at_hand.push(Arc::downgrade(new));
        for other in others {
            sum = sum.saturating_add(other.length);
            if sum <= self.limit {
                at_hand.push(Arc::downgrade(&other));
            } else {
                other.plain.lock().unwrap_or_else(PoisonError::into_inner).kept = None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prepared::prepare::finish;
    use ignition::Version;
    use serde_json::json;

    fn mk_reply(letter: &str, size: usize) -> Arc<Reply> {
        let config = json!({ "text": letter.repeat(size) });
        Arc::new(Reply::new(finish(config, Version::V3_5, Vec::new()).unwrap()))
    }

    fn at_hand(reply: &Reply) -> bool {
        reply.plain.lock().unwrap().kept.is_some()
    }

    #[test]
    fn what_was_asked_for_lately_is_at_hand_and_the_rest_is_packed() {
        let warm = UnpackedCache { limit: 10_100, ..UnpackedCache::default() };
        let [a, b, c] = ["a", "b", "c"].map(|letter| mk_reply(letter, 5000));
        assert!(!at_hand(&a), "packed until somebody asks");
        for reply in [&a, &b, &a, &c] {
            let body = warm.plain(reply).unwrap();
            assert_eq!(body.len(), reply.length);
        }
        assert_eq!([&a, &b, &c].map(|r| at_hand(r)), [true, false, true], "b was not asked for the longest");
        assert_eq!(warm.plain(&b).unwrap()[..12], *b"{\"text\":\"bbb");
        assert_eq!([&a, &b, &c].map(|r| at_hand(r)), [false, true, true]);
        assert_eq!(warm.at_hand.lock().unwrap().len(), 2);
    }

    #[test]
    fn one_that_is_too_large_stands_alone_and_a_small_one_is_never_packed() {
        let warm = UnpackedCache { limit: 100, ..UnpackedCache::default() };
        let (large, small) = (mk_reply("a", 5000), mk_reply("b", 10));
        warm.plain(&large).unwrap();
        warm.plain(&small).unwrap();
        assert!(at_hand(&large) && at_hand(&small) && small.gzip.is_none());
        drop(large);
        warm.plain(&mk_reply("c", 5000)).unwrap();
        assert_eq!(warm.at_hand.lock().unwrap().len(), 1, "what is not served any more is forgotten");
    }

    #[test]
    fn machines_that_are_slow_share_one_form_with_those_that_come_later() {
        let warm = UnpackedCache { limit: 100, ..UnpackedCache::default() };
        let (a, b) = (mk_reply("a", 5000), mk_reply("b", 5000));
        let under_way = warm.plain(&a).unwrap();
        for _ in 0..3 {
            warm.plain(&b).unwrap();
            assert!(!at_hand(&a));
            assert_eq!(warm.plain(&a).unwrap().as_ptr(), under_way.as_ptr());
        }
        drop(under_way);
        warm.plain(&b).unwrap();
        assert!(a.plain.lock().unwrap().shared.upgrade().is_none(), "nobody has it any more");
    }

    #[test]
    fn many_that_ask_at_once_all_get_it() {
        let warm = UnpackedCache { limit: 6000, ..UnpackedCache::default() };
        let replies = ["a", "b", "c"].map(|letter| mk_reply(letter, 5000));
        std::thread::scope(|scope| {
            for turn in 0..4 {
                let (warm, replies) = (&warm, &replies);
                scope.spawn(move || {
                    for i in 0..300 {
                        let reply = &replies[(turn + i) % 3];
                        assert_eq!(warm.plain(reply).unwrap().len(), reply.length);
                    }
                });
            }
        });
        assert!(replies.iter().filter(|r| at_hand(r)).count() <= 3);
    }
}
