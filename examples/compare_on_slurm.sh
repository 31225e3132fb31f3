#!/bin/bash
# Compare on several nodes of a SLURM cluster, in one job, with a certificate for this job.
#SBATCH --job-name=remat --nodes=2 --ntasks-per-node=1 --cpus-per-task=16 --time=04:00:00
#SBATCH --signal=B:INT@60
set -eu
umask 077                                                  # the key is for you alone
keys=$(mktemp -d "$PWD/keys-XXXXXX")
openssl req -x509 -newkey rsa:2048 -nodes -days 7 -subj /CN=remat -keyout "$keys/key.pem" -out "$keys/cert.pem"
tls="--tls-ca-file $keys/cert.pem --tls-cert $keys/cert.pem --tls-key $keys/key.pem"
closed="--protocol tls --dashboard-address 127.0.0.1:0 --scheduler-file $keys/scheduler.json"
dask scheduler $tls $closed --port 0 &
srun dask worker $tls $closed --nworkers "$SLURM_CPUS_PER_TASK" --nthreads 1 &
until grep -q tls:// "$keys/scheduler.json" 2>/dev/null; do sleep 1; done
sleep 20                                                   # for the first workers
export DASK_DISTRIBUTED__COMM__TLS__CA_FILE=$keys/cert.pem
export DASK_DISTRIBUTED__COMM__TLS__CLIENT__CERT=$keys/cert.pem DASK_DISTRIBUTED__COMM__TLS__CLIENT__KEY=$keys/key.pem
address=$(python -c "import json, sys; print(json.load(open(sys.argv[1]))['address'])" "$keys/scheduler.json")
exec remat compare examples -a auto --executor "dask://$address" -o results/
