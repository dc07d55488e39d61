//! bench-mountpoint BUCKET PREFIX MOUNTPOINT ENDPOINT REGION: mounts as mount-s3 does with its
//! default options and without a cache of its own, stays in the foreground, ends with the mount.

use anyhow::{Context, Result};
use mountpoint_s3_client::config::AddressingStyle;
use mountpoint_s3_client::user_agent::UserAgent;
use mountpoint_s3_fs::data_cache::DataCacheConfig;
use mountpoint_s3_fs::fuse::config::{FuseOptions, FuseSessionConfig, MountPoint};
use mountpoint_s3_fs::memory::{CandidateSize, MINIMUM_MEM_LIMIT, PagedPool};
use mountpoint_s3_fs::s3::config::{
    ClientConfig, MemoryLimitSetting, PartConfig, Region, TargetThroughputSetting,
};
use mountpoint_s3_fs::s3::{Bucket, Prefix, S3Path};
use mountpoint_s3_fs::{MountpointConfig, Runtime, S3FilesystemConfig, Superblock, SuperblockConfig};

const PART: usize = 8 << 20;

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [bucket, prefix, mountpoint, endpoint, region] = &words[..] else {
        anyhow::bail!("usage: bench-mountpoint BUCKET PREFIX MOUNTPOINT ENDPOINT REGION");
    };
    let client_config = ClientConfig {
        region: Region::new_user_specified(region.clone()),
        endpoint_url: Some(endpoint.clone()),
        addressing_style: AddressingStyle::Path,
        dual_stack: false,
        transfer_acceleration: false,
        auth_config: Default::default(),
        requester_pays: false,
        expected_bucket_owner: None,
        throughput_target: TargetThroughputSetting::Default,
        bind: None,
        part_config: PartConfig::with_part_size(PART)
            .validate(MemoryLimitSetting::Default(MINIMUM_MEM_LIMIT * 4))?,
        user_agent: UserAgent::new(Some("bench-mountpoint".to_string())),
        tls_config: None,
    };
    let pool = PagedPool::config()
        .with_candidate_sizes([CandidateSize::new(PART)])
        .with_memory_limit(MINIMUM_MEM_LIMIT * 4)
        .build();
    let client = client_config.create_client(pool.clone(), None).context("no client")?;
    let runtime = Runtime::new(client.event_loop_group());
    let filesystem = S3FilesystemConfig {
        allow_delete: true,
        allow_overwrite: true,
        ..Default::default()
    };
    let place = S3Path::new(Bucket::new(bucket.as_str())?, Prefix::new(prefix)?);
    let superblock = Superblock::new(
        client.clone(),
        place,
        SuperblockConfig {
            cache_config: filesystem.cache_config.clone(),
            s3_personality: filesystem.s3_personality,
        },
    );
    let session = FuseSessionConfig::new(MountPoint::new(mountpoint)?, FuseOptions::default(), 16)?;
    let no_cache = DataCacheConfig {
        disk_cache_config: None,
        express_cache_config: None,
    };
    MountpointConfig::new(session, filesystem, no_cache)?
        .create_fuse_session(superblock, client, runtime, pool)?
        .join()
        .context("the mount ended badly")
}
