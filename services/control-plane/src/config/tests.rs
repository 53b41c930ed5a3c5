use std::collections::BTreeMap;
use std::time::Duration;

use super::*;

const EXAMPLE: &str = include_str!("../../../../hearth.toml");

fn load(file: &str, environment: &[(&str, &str)], flags: &[(&'static str, &str)]) -> Result<Settings, ConfigError> {
    Settings::load(&Sources {
        file: Some(("hearth.toml".into(), file.into())),
        environment: environment.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
        flags: flags.iter().map(|(k, v)| (*k, (*v).to_owned())).collect(),
    })
}

#[test]
fn a_flag_counts_before_a_variable_and_a_variable_before_the_file() {
    let file = "listen = \"127.0.0.1:1\"\nreplica_id = \"from-file\"\ndata_dir = \"from-file\"";
    let environment = [("HEARTH_LISTEN", "127.0.0.1:2"), ("HEARTH_REPLICA_ID", "from-env"), ("PATH", "/bin")];
    let settings = load(file, &environment, &[("listen", "127.0.0.1:3")]).unwrap();
    assert_eq!(settings.listen.port(), 3);
    assert_eq!(settings.replica_id.unwrap().as_str(), "from-env");
    assert!(settings.data_dir.ends_with("from-file"));
    assert!(settings.data_dir.is_absolute(), "others are told of it, whatever their working folder");
}

#[test]
fn the_defaults_are_those_of_the_contract() {
    let settings = Settings::load(&Sources::default()).unwrap();
    assert_eq!(settings.listen.to_string(), "127.0.0.1:7420");
    assert_eq!(settings.max_interactive_children, 8);
    assert_eq!(settings.interactive_child_idle_ttl, Duration::from_secs(30 * 60));
    assert_eq!(settings.replica_lease, Duration::from_secs(3));
    assert_eq!(settings.passivate_after, Duration::from_secs(60));
    assert!(!settings.dev_exec && !settings.no_auth && settings.token.is_none());
    assert_eq!(settings.log_filter, hearth_telemetry::TelemetryOptions::DEFAULT_LOG_FILTER);
}

#[test]
fn unknown_names_stop_the_start_wherever_they_come_from() {
    let error = load("lissten = 1", &[("HEARTH_LISSTEN", "1")], &[]).unwrap_err();
    assert_eq!(error.problems.len(), 2);
    assert!(error.to_string().contains("`lissten` in hearth.toml") && error.to_string().contains("HEARTH_LISSTEN is"));
}

#[test]
fn variables_of_the_operators_client_do_not_stop_a_replica() {
    load("", &[("HEARTH_URL", "http://x"), ("HEARTH_CONFIG", "x"), ("OTHER_URL", "x")], &[]).unwrap();
}

#[test]
fn every_bad_value_is_told_with_its_setting_its_origin_and_what_is_allowed() {
    for setting in SETTINGS.iter().filter(|setting| !setting.secret) {
        let error = load("", &[(&setting.variable(), "  ")], &[]).unwrap_err();
        let [problem] = error.problems.as_slice() else { panic!("{error}") };
        for part in [setting.key, &setting.variable(), "\"  \"", setting.allowed] {
            assert!(problem.contains(part), "{problem} lacks {part}");
        }
    }
    let file = "listen = [1]\npassivate_after_ms = \"1m\"\nstream_stall = 30";
    assert_eq!(load(file, &[], &[]).unwrap_err().problems.len(), 3);
}

#[test]
fn a_token_that_is_refused_is_not_shown() {
    let error = load("", &[("HEARTH_TOKEN", "geheim nis")], &[]).unwrap_err().to_string();
    assert!(error.contains("`token`") && !error.contains("geheim"), "{error}");
    let settings = load("token = \"geheim\"", &[], &[]).unwrap();
    assert!(!format!("{settings:?}").contains("geheim"));
}

#[test]
fn a_file_that_is_no_toml_is_told_with_its_line() {
    let error = load("listen = \"127.0.0.1:1\"\nwhat is this", &[], &[]).unwrap_err().to_string();
    assert!(error.contains("hearth.toml, line 2"), "{error}");
}

#[test]
fn sandbox_settings_are_handed_on_the_variable_before_the_file() {
    let file = "[sandbox]\nimage = \"a\"\npool_size = 3";
    let settings = load(file, &[("SANDBOX_IMAGE", "b"), ("SANDBOX_ALLOW_EGRESS", "1")], &[]).unwrap();
    let expected = [("SANDBOX_ALLOW_EGRESS", "1"), ("SANDBOX_IMAGE", "b"), ("SANDBOX_POOL_SIZE", "3")];
    assert_eq!(settings.sandbox, expected.map(|(k, v)| (k.to_owned(), v.to_owned())).into());
    assert!(load("sandbox = 1", &[], &[]).is_err());
}

#[test]
fn the_general_variable_of_opentelemetry_counts_last() {
    let general = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://general");
    assert_eq!(load("", &[general], &[]).unwrap().otlp_endpoint.as_deref(), Some("http://general"));
    let own = load("otlp_endpoint = \"http://own\"", &[general], &[]).unwrap();
    assert_eq!(own.otlp_endpoint.as_deref(), Some("http://own"));
}

/// The lines that can be switched on, switched on.
fn switched_on() -> BTreeMap<String, String> {
    let setting = |line: &str| {
        let (key, value) = line.strip_prefix("# ")?.split_once(" = ")?;
        key.bytes().all(|b| b.is_ascii_lowercase() || b == b'_').then(|| (key.to_owned(), value.to_owned()))
    };
    EXAMPLE.split("[sandbox]").next().unwrap().lines().filter_map(setting).collect()
}

#[test]
fn the_example_lists_every_setting_with_its_default_and_parses() {
    load(EXAMPLE, &[], &[]).unwrap();
    let listed = switched_on();
    for setting in SETTINGS {
        let shown = listed.get(setting.key).unwrap_or_else(|| panic!("{} is not in hearth.toml", setting.key));
        if let Some(default) = setting.default {
            assert_eq!(shown, default, "{}", setting.key);
        }
    }
    assert_eq!(listed.len(), SETTINGS.len(), "hearth.toml shows settings that do not exist");
    let all: String = listed.iter().map(|(key, value)| format!("{key} = {value}\n")).collect();
    load(&all, &[], &[]).unwrap();
}
