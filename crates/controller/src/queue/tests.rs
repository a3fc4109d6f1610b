//! When keys get their passes: at once, spaced out, again after a failure; and in which order.

use super::*;
use std::sync::atomic::{AtomicUsize, Ordering};

const WORK: Work = Work {
    name: "test",
    parallel: 4,
    spacing: Spacing { growth: Growth::Changes, ..Spacing::millis(20, 1000) },
};

/// Works off a queue in paused time while `drive` marks keys. Returns when each pass began.
async fn record<D: Future>(
    outcome: impl Fn(usize) -> Outcome,
    drive: impl FnOnce(Arc<Queue<String>>) -> D,
) -> Vec<(String, Duration)> {
    let queue = Arc::new(Queue::default());
    let (starts, n) = (Mutex::new(vec![]), AtomicUsize::new(0));
    let (stop, begin) = (CancellationToken::new(), Instant::now());
    let engine = work(&queue, WORK, &stop, |key: String, _| {
        starts.lock().unwrap().push((key, begin.elapsed()));
        let outcome = outcome(n.fetch_add(1, Ordering::Relaxed));
        Box::pin(async move {
            tokio::time::sleep(Duration::from_millis(2)).await;
            outcome
        })
    });
    let feed = async {
        drive(queue.clone()).await;
        stop.cancel();
    };
    tokio::join!(engine, feed);
    starts.into_inner().unwrap()
}

#[tokio::test(start_paused = true)]
async fn keys_wait_in_the_order_in_which_they_are_due_and_are_brought_forward_only() {
    let now = Instant::now();
    let at = |second| now + Duration::from_secs(second);
    let mut waiting = Waiting::default();
    for (key, second) in [("a", 3), ("b", 2), ("c", 9), ("a", 1), ("b", 4)] {
        waiting.schedule_by(key, at(second));
    }
    assert_eq!(waiting.take_due(now), None);
    assert_eq!(waiting.next(), Some(at(1)));
    let due: Vec<_> = std::iter::from_fn(|| waiting.take_due(at(5))).collect();
    assert_eq!(due, [("a", at(1)), ("b", at(2))]);
    assert!(waiting.contains(&"c") && !waiting.contains(&"a"));
    assert_eq!((waiting.at.len(), waiting.order.len()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_single_change_is_acted_on_at_once() {
    let starts = record(
        |_| Outcome::Done,
        |q| async move {
            for _ in 0..3 {
                q.mark("a".to_owned());
                tokio::time::sleep(Duration::from_secs(5)).await;
            }
        },
    )
    .await;
    let at: Vec<u64> = starts.iter().map(|(_, t)| t.as_secs()).collect();
    assert_eq!(at, [0, 5, 10]);
    assert!(starts.iter().all(|(_, t)| t.subsec_millis() < 2), "{starts:?}");
}

#[tokio::test(start_paused = true)]
async fn a_burst_of_a_hundred_changes_makes_a_handful_of_passes_and_the_last_change_is_seen() {
    let starts = record(
        |_| Outcome::Done,
        |q| async move {
            for _ in 0..100 {
                q.mark("a".to_owned());
                tokio::time::sleep(Duration::from_millis(3)).await;
            }
            tokio::time::sleep(Duration::from_secs(5)).await;
        },
    )
    .await;
    assert!((2..=7).contains(&starts.len()), "{starts:?}");
    assert!(starts.last().unwrap().1 >= Duration::from_millis(297), "{starts:?}");
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_each_result_is_not_held_up_and_who_does_not_is() {
    // One change at a time, each a moment after the result of the last one.
    let starts = record(
        |_| Outcome::Done,
        |q| async move {
            for _ in 0..50 {
                q.mark("a".to_owned());
                tokio::time::sleep(Duration::from_millis(25)).await;
            }
        },
    )
    .await;
    assert_eq!(starts.len(), 50);
    assert!(starts.windows(2).all(|w| w[1].1 - w[0].1 < Duration::from_millis(30)), "{starts:?}");
}

#[tokio::test(start_paused = true)]
async fn an_urgent_change_does_not_wait_for_the_distance_that_a_burst_has_left_behind() {
    let starts = record(
        |_| Outcome::Done,
        |q| async move {
            // A burst, whose passes are far apart in the end.
            for _ in 0..100 {
                q.mark_all(["a".to_owned()]);
                q.mark_all(["a".to_owned()]);
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            // While a pass is due later: it is brought forward. Then once while one runs.
            for pause in [100, 1, 1000] {
                q.mark("a".to_owned());
                q.mark_urgent("a".to_owned());
                tokio::time::sleep(Duration::from_millis(pause)).await;
            }
        },
    )
    .await;
    let after: Vec<u128> = starts.iter().map(|(_, t)| t.as_millis()).filter(|t| *t >= 1000).collect();
    let [first, second, third, ..] = after[..] else { panic!("{starts:?}") };
    assert!(first - 1000 <= 20 && second - 1100 <= 2 && third - second == 20, "{starts:?}");
}

#[test]
fn the_distance_grows_with_changes_or_with_passes_and_a_calm_key_starts_anew() {
    let spacing = |growth| Spacing { growth, ..Spacing::millis(50, 1000) };
    let ms = Duration::from_millis;
    for (growth, gap, since, changes, want) in [
        (Growth::Changes, 0, None, 9, 50),
        (Growth::Changes, 50, Some(50), 5, 100),
        (Growth::Changes, 50, Some(50), 1, 50),
        (Growth::Changes, 400, Some(400), 1, 200),
        (Growth::Changes, 400, Some(800), 9, 50),
        (Growth::Changes, 800, Some(800), 9, 1000),
        (Growth::Passes, 50, Some(50), 1, 100),
        (Growth::Passes, 50, Some(100), 1, 50),
    ] {
        let got = spacing(growth).after(ms(gap), since.map(ms), changes);
        assert_eq!(got, ms(want), "{growth:?}: {gap} ms, {changes} changes after {since:?} ms");
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_pass_is_repeated_with_growing_waits_until_it_succeeds() {
    let outcome = |n| if n < 4 { Outcome::Failed("no".to_owned()) } else { Outcome::Done };
    let starts = record(outcome, |q| async move {
        q.mark("a".to_owned());
        tokio::time::sleep(Duration::from_mins(5)).await;
    })
    .await;
    assert_eq!(starts.len(), 5);
    let gap = |i: usize| starts[i + 1].1 - starts[i].1;
    assert!(gap(3) > gap(0) * 2, "{starts:?}");
}

#[tokio::test(start_paused = true)]
async fn a_change_during_a_pass_makes_another_pass_and_one_key_never_runs_twice_at_once() {
    let starts = record(
        |_| Outcome::Done,
        |q| async move {
            q.mark_all(["a".to_owned(), "b".to_owned()]);
            tokio::time::sleep(Duration::from_millis(1)).await;
            q.mark("a".to_owned());
            tokio::time::sleep(Duration::from_secs(1)).await;
        },
    )
    .await;
    let a: Vec<Duration> = starts.iter().filter(|(k, _)| k == "a").map(|(_, t)| *t).collect();
    assert_eq!((a.len(), starts.len()), (2, 3), "{starts:?}");
    assert!(a[1] - a[0] >= Duration::from_millis(2));
}

#[tokio::test(start_paused = true)]
async fn a_key_that_waits_for_a_clock_does_not_hold_others_up() {
    let outcome = |n| if n == 0 { Outcome::After(Duration::from_secs(30)) } else { Outcome::Done };
    let starts = record(outcome, |q| async move {
        q.mark("slow".to_owned());
        tokio::time::sleep(Duration::from_secs(1)).await;
        q.mark("other".to_owned());
        tokio::time::sleep(Duration::from_mins(1)).await;
    })
    .await;
    let order: Vec<&str> = starts.iter().map(|(k, _)| k.as_str()).collect();
    assert_eq!(order, ["slow", "other", "slow"]);
    assert!(starts[2].1 >= Duration::from_secs(30));
}
