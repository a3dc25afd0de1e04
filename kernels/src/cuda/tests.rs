//! Errors of memory, on simulated devices of their own: small ones, and one that is lost. The simulator reads its settings
//! once per process, so each test runs itself again with them.

use std::process::Command;

use crate::testing::simulator;
use crate::{DType, Device, Error, Tensor, add};

/// The device, in the process that has these settings; else starts that process and returns `None`.
fn with(test: &str, variable: &str, value: &str) -> Option<Device> {
    if std::env::var_os("MILLRACE_TEST_CARD").is_some() {
        return None;
    }
    let device = simulator::folder()?;
    if std::env::var(variable).is_ok_and(|found| found == value) {
        return simulator::device();
    }
    drop(device);
    let program = std::env::current_exe().unwrap();
    let name = format!("cuda::tests::{test}");
    let run = Command::new(program)
        .args(["--exact", &name])
        .env(variable, value)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&run.stdout).into_owned();
    assert!(run.status.success(), "{said}");
    assert!(said.contains("1 passed"), "{said}");
    None
}

fn tensor(megabytes: usize, device: &Device) -> crate::Result<Tensor> {
    Tensor::empty(&[megabytes << 18], DType::F32, device)
}

#[test]
fn a_lost_device_is_not_reported_as_full() {
    let name = "a_lost_device_is_not_reported_as_full";
    let Some(device) = with(name, "MILLRACE_SIM_LOSE", "0:1") else {
        return;
    };
    let (mut a, b) = (tensor(1, &device).unwrap(), tensor(1, &device).unwrap());
    let _ = add::add_into(&mut a, &b);
    let _ = device.synchronize();
    let found = tensor(2, &device).map(drop);
    assert!(matches!(found, Err(Error::Driver { .. })), "{found:?}");
    assert!(matches!(device.reserve(1 << 20), Err(Error::Driver { .. })));
}

#[test]
fn a_full_device_takes_back_the_pool_and_then_says_so() {
    let name = "a_full_device_takes_back_the_pool_and_then_says_so";
    let Some(device) = with(name, "MILLRACE_SIM_MEMORY_MB", "8") else {
        return;
    };
    let free = device.system_memory().unwrap().unwrap().free;
    assert!(free <= 8 << 20, "{free}");
    drop((tensor(3, &device).unwrap(), tensor(2, &device).unwrap()));
    // the pool holds 5 MB of the device's 8
    let large = tensor(6, &device).unwrap();
    let found = tensor(4, &device).map(drop);
    assert!(matches!(found, Err(Error::Memory { .. })), "{found:?}");
    drop(large);
    assert!(tensor(4, &device).is_ok());
}
