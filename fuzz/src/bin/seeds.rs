//! Writes the seeds of every target to `corpus/TARGET/`.

use clash_fuzz::seeds;

fn main() -> std::io::Result<()> {
    let corpus = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    for (target, _) in seeds::TARGETS {
        let dir = corpus.join(target);
        std::fs::create_dir_all(&dir)?;
        for (at, seed) in seeds::seeds_for(target).iter().enumerate() {
            std::fs::write(dir.join(format!("seed-{at}")), seed)?;
        }
    }
    Ok(())
}
