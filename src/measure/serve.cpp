#include "measure/serve.hpp"

#include <unistd.h>

#include "measure/session.hpp"
#include "wire/frame.hpp"

namespace jitune::measure {
namespace {

constexpr int kContextLost = 70;

}  // namespace

Json answer(Session& session, const Json& request) {
  const std::string op = wire::get_string(request, "op");
  const auto malformed = [](auto reply, const Failure& why) {
    reply.error = "malformed request: " + why.message;
    return to_json(reply);
  };
  if (op == "setup") {
    const auto parsed = setup_from_json(request);
    return parsed ? to_json(session.setup(*parsed)) : malformed(SetupReply{}, parsed.failure());
  }
  if (op == "trial") {
    const auto parsed = trial_request_from_json(request);
    return parsed ? to_json(session.trial(*parsed)) : malformed(TrialReply{}, parsed.failure());
  }
  if (op == "rematch") {
    const auto parsed = rematch_request_from_json(request);
    return parsed ? to_json(session.rematch(*parsed)) : malformed(RematchReply{}, parsed.failure());
  }
  if (op == "facts") {
    const auto parsed = facts_request_from_json(request);
    if (!parsed) return facts_to_json({}, "malformed request: " + parsed.error());
    const auto facts = session.facts(*parsed);
    return facts ? facts_to_json(*facts, "") : facts_to_json({}, facts.error());
  }
  if (op == "host_data") {
    const auto parsed = host_data_request_from_json(request);
    return parsed ? to_json(session.host_data(*parsed)) : malformed(HostDataReply{}, parsed.failure());
  }
  return {{"op", op}, {"error", "malformed request: the measuring worker knows no op `" + op + "`"}};
}

int serve(int in, int out, const std::string& device_uuid) {
  const Json hello{{"hello", "measure"},
                   {"protocol", wire::kProtocolVersion},
                   {"version", JITUNE_VERSION},
                   {"pid", static_cast<int64_t>(::getpid())}};
  if (!wire::write_frame(out, hello)) return 0;
  Session session;
  session.warm_up(device_uuid);
  while (!session.lost()) {
    const Result<Json> message = wire::read_frame(in);
    // A frame that can't be read leaves no way to find the next one; the host sees the end and starts another worker.
    if (!message || message->is_null()) return 0;
    const auto request = message->find("request");
    const Json reply = answer(session, request != message->end() ? *request : Json::object());
    Json frame{{"id", wire::get_int(*message, "id")}, {"reply", reply}};
    if (session.lost()) frame["last"] = true;  // the pool starts another worker before the next request
    if (!wire::write_frame(out, frame)) return 0;
  }
  return kContextLost;
}

}  // namespace jitune::measure
