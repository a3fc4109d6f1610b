//! Deletions that fail: which are tried again, for how long, and what is reported.

use super::*;

#[test]
fn a_refusal_is_told_once_and_ends_it_and_an_outage_is_tried_for_a_week() {
    let fails = |again| Err(DeletionFailure { why: "405".to_owned(), retry: again });
    assert_eq!(after_deletion(&image(1), Ok(()), &time(0)), DeletionOutcome::Deleted);
    let DeletionOutcome::Remains { entry: Some(refused), tell: Some(said) } =
        after_deletion(&image(1), fails(Retry::Never), &time(0))
    else {
        panic!("it is told")
    };
    assert!(said.contains("stays") && said.contains("405") && said.contains(&name(1)), "{said}");
    assert_eq!(done(&list(&[*refused.clone()]), &[], &[], &[]), [""; 0], "it is not tried again");
    let DeletionOutcome::Remains { entry: Some(away), tell: Some(said) } =
        after_deletion(&image(1), fails(Retry::ForAWeek), &time(0))
    else {
        panic!("it is told")
    };
    assert!(said.contains("tried again"), "{said}");
    assert_eq!(done(&list(&[*away.clone()]), &[], &[], &[]), ["delete image R@sha256:one"]);
    let still = DeletionOutcome::Remains { entry: None, tell: None };
    assert_eq!(
        after_deletion(&away, fails(Retry::ForAWeek), &time(6 * 86_400)),
        still,
        "nothing is written or told again"
    );
    let DeletionOutcome::Remains { entry: Some(entry), tell: Some(_) } =
        after_deletion(&away, fails(Retry::ForAWeek), &time(8 * 86_400))
    else {
        panic!("it ends")
    };
    assert!(entry.kept.as_ref().unwrap().for_good && entry.kept.unwrap().since == time(0));
    for again in [Retry::Never, Retry::ForAWeek, Retry::UntilFixed] {
        let DeletionOutcome::Remains { entry: Some(_), tell } =
            after_deletion(&tag("b1"), fails(again), &time(0))
        else {
            panic!("{again:?}")
        };
        assert_eq!(tell, None, "the list says it, and there may be nothing: {again:?}");
    }
    // An entry comes back as it was, and the list of what stays has an end.
    assert_eq!(Pushed::read(&refused.text()).as_ref(), Some(&*refused));
    assert_eq!(Pushed::read("{}"), None);
    let many: Vec<Pushed> = (0..MOST_KEPT + 2)
        .map(|i| Pushed {
            what: PushedContent::Layers { repository: format!("r.example.com/{i}") },
            kept: Some(NotDeleted {
                why: String::new(),
                since: time(i as i64),
                for_good: true,
                until_mended: false,
            }),
            ..image(0)
        })
        .collect();
    let gone = done(&list(&many), &[], &[], &[]);
    assert_eq!(gone.len(), 2);
    assert!(gone.contains(&"forget layers in r.example.com/0".to_owned()), "the oldest: {gone:?}");
}

#[test]
fn a_week_counts_while_it_is_tried_and_what_people_can_mend_has_no_end() {
    let fails = |again| Err(DeletionFailure { why: "x".to_owned(), retry: again });
    let stays =
        |pushed: &Pushed, again, day: i64| match after_deletion(pushed, fails(again), &time(day * 86_400)) {
            DeletionOutcome::Remains { entry: Some(entry), tell: Some(tell) } => Some((*entry, tell)),
            DeletionOutcome::Remains { entry: None, tell: None } => None,
            other => panic!("{other:?}"),
        };
    let (missing, said) = stays(&image(1), Retry::UntilFixed, 0).unwrap();
    assert!(said.contains("until the cause is fixed"), "{said}");
    assert_eq!(stays(&missing, Retry::UntilFixed, 400), None, "nothing is told again, and it never ends");
    assert_eq!(done(&list(std::slice::from_ref(&missing)), &[], &[], &[]), ["delete image R@sha256:one"]);
    // The Secret is there after 400 days, and the registry is away then.
    let (away, _) = stays(&missing, Retry::ForAWeek, 400).unwrap();
    assert!(!away.kept.as_ref().unwrap().for_good);
    assert_eq!(stays(&away, Retry::ForAWeek, 406), None);
    assert!(stays(&away, Retry::ForAWeek, 408).unwrap().0.kept.unwrap().for_good);
    // It is named for a while: the week begins anew.
    let named = [name(1)].into();
    let pushing = BTreeSet::new();
    let plan = clean_up(CleanUpInputs {
        list: &list(&[away]),
        configs: &[],
        builds: &[],
        named: &named,
        pushing: &pushing,
    });
    assert_eq!((plan.remember, plan.forget, plan.delete), (vec![image(1)], vec![], vec![]));
    let (refused, _) = stays(&image(1), Retry::Never, 0).unwrap();
    assert_eq!(done(&list(&[refused]), &[], &[], &[name(1)]), [""; 0], "what was refused stays refused");
    // The list of what is tried has an end, too, and what leaves it stays in the registry.
    let many: Vec<Pushed> = (0..MOST_TRIED + 2)
        .map(|i| Pushed {
            what: PushedContent::Layers { repository: format!("r.example.com/{i}") },
            kept: missing.kept.clone().map(|k| NotDeleted { since: time(i as i64), ..k }),
            ..image(0)
        })
        .collect();
    let all = done(&list(&many), &[], &[], &[]);
    let deleted = all.iter().filter(|l| l.starts_with("delete")).count();
    assert_eq!((deleted, all.len()), (MOST_TRIED, MOST_TRIED + 2));
    assert!(all.contains(&"forget layers in r.example.com/0".to_owned()), "the oldest");
}
