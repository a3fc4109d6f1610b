//! What the metrics of image builds say after each step of a build.

use super::*;
use api::k8s::Time;

fn text(registry: &Registry) -> String {
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, registry).unwrap();
    text
}

fn says(registry: &Registry, lines: &[&str]) {
    let text = text(registry);
    for line in lines {
        assert!(text.lines().any(|l| l == *line), "{line} in\n{text}");
    }
}

fn figures(state: State, retries: &[(&str, u64)]) -> BuildCounts {
    let time = |second| Some(Time(jiff::Timestamp::from_second(second).unwrap()));
    let ended = state.is_terminal();
    let push = match state {
        State::Succeeded => Some(PushResult::Succeeded),
        State::Failed => Some(PushResult::Failed),
        _ => None,
    };
    let current =
        CurrentBuild { state, start: time(1000), end: time(2000).filter(|_| ended), job: Some(state), push };
    BuildCounts {
        current: Some(current),
        active: i64::from(!ended),
        retries: retries.iter().map(|(job, n)| ((*job).to_owned(), *n)).collect(),
    }
}

#[test]
fn a_build_is_followed_and_counted_and_forgotten() {
    let mut registry = Registry::default();
    let m = ImageMetrics::new(&mut registry);
    m.observe("infra", "rendered-1", &figures(State::Building, &[("j1", 1)]));
    says(
        &registry,
        &[
            "ocl_build_state{pool=\"infra\",state=\"building\"} 1",
            "ocl_build_state{pool=\"infra\",state=\"failed\"} 0",
            "ocl_build_job_state{pool=\"infra\",state=\"active\"} 1",
            "ocl_build_start_timestamp_seconds{pool=\"infra\"} 1000",
            "ocl_active_builds{pool=\"infra\"} 1",
            // There before anything has failed: otherwise Prometheus would not see the first increase.
            "ocl_build_total{pool=\"infra\",state=\"failed\"} 0",
            "ocl_image_push_total{pool=\"infra\",state=\"failed\"} 0",
            // What an earlier leader has counted.
            "ocl_build_retries_total{pool=\"infra\"} 0",
            "ocl_config_change_total{pool=\"infra\"} 0",
        ],
    );
    m.observe("infra", "rendered-2", &figures(State::Building, &[("j1", 2), ("j2", 1)]));
    m.observe("infra", "rendered-2", &figures(State::Failed, &[("j2", 1)]));
    let news = BuildObservation {
        ended: Some(State::Failed),
        queued: Some(7.0),
        lasted: Some(1000.0),
        push: Some(PushResult::Failed),
    };
    m.count("infra", &news);
    m.count("infra", &BuildObservation::default());
    m.count_configs(1);
    m.nodes("infra", Some(ImageNodes { total: 3, updated: 2, layered: 1 }));
    says(
        &registry,
        &[
            "ocl_build_state{pool=\"infra\",state=\"building\"} 0",
            "ocl_build_state{pool=\"infra\",state=\"failed\"} 1",
            "ocl_build_end_timestamp_seconds{pool=\"infra\",state=\"failed\"} 2000",
            "ocl_build_retries_total{pool=\"infra\"} 2",
            "ocl_config_change_total{pool=\"infra\"} 1",
            "ocl_build_total{pool=\"infra\",state=\"failed\"} 1",
            "ocl_build_duration_seconds_sum{pool=\"infra\",state=\"failed\"} 1000.0",
            "ocl_build_queue_duration_seconds_bucket{le=\"15.0\",pool=\"infra\"} 1",
            "ocl_image_push_state{pool=\"infra\",state=\"failed\"} 1",
            "ocl_image_push_total{pool=\"infra\",state=\"failed\"} 1",
            "ocl_rollout_updated_nodes{pool=\"infra\"} 2",
            "ocl_layered_nodes_count{pool=\"infra\"} 1",
            "mco_mosc_count 1",
        ],
    );
    // It builds again: the end of the build before is not this one's.
    m.observe("infra", "rendered-2", &figures(State::Prepared, &[]));
    assert!(!text(&registry).contains("ocl_build_end_timestamp_seconds{"), "{}", text(&registry));
    let standby = ImageMetrics::clone(&m);
    standby.clear_for_standby();
    let cleared = text(&registry);
    assert!(!cleared.contains("ocl_build_state{") && cleared.contains("mco_mosc_count 0"), "{cleared}");
    assert!(cleared.contains("ocl_build_total{pool=\"infra\",state=\"failed\"} 1"), "{cleared}");
    m.forget_builds("infra");
    m.nodes("infra", None);
    assert!(!text(&registry).contains("infra"), "{}", text(&registry));
}
