// graphile-worker in its batched mode: fill a queue, or work until it is empty. Copied into benchmarks/.peers and run there.
import { Logger, makeWorkerUtils, run } from "graphile-worker";

const task = JSON.parse(process.argv[2]);
const { host, port, user, dbname } = task.dsn;
const connectionString = `postgresql://${user}@/${dbname}?host=${encodeURIComponent(host)}&port=${port}`;

if (task.act === "fill") {
  const utils = await makeWorkerUtils({ connectionString });
  await utils.migrate();
  for (let n = 0; n < task.number; n += 1000) {
    await utils.addJobs(Array.from({ length: 1000 }, () => ({ identifier: "act", payload: { pad: "x".repeat(1000) } })));
  }
  await utils.release();
  process.exit(0);
}

let done = 0, started = 0, last = 0;
const runner = await run({
  connectionString,
  concurrency: 24,
  noHandleSignals: true,
  logger: new Logger(() => () => {}), // a line for each job would be most of what is measured
  taskList: { act: async () => { last = Date.now(); started ||= last; done++; } },
  preset: { worker: {
    concurrentJobs: 24, maxPoolSize: 10, completeJobBatchDelay: 0, failJobBatchDelay: 0,
    localQueue: { size: 500, refetchDelay: { durationMs: 10 } },
  } },
});
while (last === 0 || Date.now() - last < 1000) await new Promise((resolve) => setTimeout(resolve, 50));
await runner.stop();
process.stdout.write(JSON.stringify({ done, started: started / 1000, ended: last / 1000 }) + "\n", () => process.exit(0));
