#!/bin/bash
# Starts Ray on the nodes of a Slurm job, then a command: sbatch slurm.sh h2fdp run FILE --set runtime.address=auto
#SBATCH --job-name=h2fdp
#SBATCH --nodes=3 --ntasks-per-node=1 --cpus-per-task=8
#SBATCH --no-requeue         # a lost node ends the job: continue by `sbatch slurm.sh h2fdp resume DIR`, not from the beginning
#SBATCH --signal=B:TERM@60   # a minute before the time limit, h2fdp stops with a checkpoint
set -euo pipefail
python -c "import ray"   # ends the job here, with the reason, where `python` is not that of h2fdp

head=$(hostname --all-ip-addresses | cut -d' ' -f1)   # state it here if other nodes reach this one at another address
export RAY_ADDRESS=$head:$((20000 + SLURM_JOB_ID % 10000))
RAY_AUTH_TOKEN=$(openssl rand -hex 32)   # without a token, every user of the network can run programs as you
export RAY_AUTH_MODE=token RAY_AUTH_TOKEN
export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK   # since Slurm 22.05, srun does not take it from sbatch

node() {   # one of Ray's nodes, until a signal; sockets in its folder need a short path
    trap : TERM USR1
    folder=$(mktemp -d /tmp/ray-XXXXXX)
    ray start --block --disable-usage-stats --num-cpus="$SLURM_CPUS_PER_TASK" --temp-dir="$folder" \
        --min-worker-port=0 --max-worker-port=0 "$@" || rm -rf "$folder"
}
export -f node
start() { srun --output="slurm-$SLURM_JOB_ID-ray.out" --open-mode=append --no-kill --kill-on-bad-exit=0 "$@" & }

trap 'kill -USR1 $(jobs -p) && wait' EXIT
start --nodes=1 --ntasks=1 --nodelist="$SLURMD_NODENAME" \
    bash -c 'node --head --include-dashboard=false --node-ip-address="${RAY_ADDRESS%:*}" --port="${RAY_ADDRESS#*:}"'
others=$((SLURM_JOB_NUM_NODES - 1))
((others == 0)) || start --nodes=$others --ntasks=$others --exclude="$SLURMD_NODENAME" \
    bash -c 'node --address="$RAY_ADDRESS"'

joined() { python -c 'import ray; ray.init(logging_level="ERROR"); print(len(ray.nodes()))' 2>/dev/null || echo 0; }
deadline=$((SECONDS + 180))
until (($(joined) == SLURM_JOB_NUM_NODES)); do
    ((SECONDS < deadline)) || { echo "Ray did not start on all nodes: see slurm-$SLURM_JOB_ID-ray.out"; exit 1; }
    sleep 1
done

"$@" &
command=$!
trap 'kill -TERM $command' TERM
wait $command || wait $command   # the signal ends the first wait
