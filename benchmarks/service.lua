-- What wrk asks of the service: single questions whose lengths always change.
local devices, models = { "H200" }, { "qwen3-8b" }

function init(arguments)
  if arguments[1] == "many" then
    devices = { "H200", "sm120", "B200", "A100", "sm89", "sm100" }
    models = { "qwen3-8b", "llama-3.1-8b", "glm-5.2-fp8", "deepseek-v3.2" }
  end
end

local asked = 0
local form = '{"device": "%s", "model": "%s", "request": {"query_len": %d, "seq_len": %d}}'

function request()
  asked = asked + 1
  local device = devices[asked % #devices + 1]
  local model = models[math.floor(asked / #devices) % #models + 1]
  local query = (asked * 7919) % 8192 + 1
  local body = form:format(device, model, query, query + (asked * 104729) % 100000)
  return wrk.format("POST", "/v1/resolve", { ["content-type"] = "application/json" }, body)
end

function done(summary, latency)
  local errors = summary.errors
  io.write(string.format('{"requests": %d, "seconds": %f, "failed": %d, "p50_ms": %f, "p99_ms": %f}\n',
    summary.requests, summary.duration / 1e6,
    errors.connect + errors.read + errors.write + errors.status + errors.timeout,
    latency:percentile(50) / 1e3, latency:percentile(99) / 1e3))
end
