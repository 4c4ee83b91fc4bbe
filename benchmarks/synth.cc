// A synthetic Triton on 127.0.0.1 for measuring gateways: real gRPC C-core framing and flow control, no inference.
//
//   synth PORT [REPO]
//
// ModelStreamInfer answers N responses, N from the INT32 input `max_tokens` or `request_output_len`, one every
// `delay_us` (an FP32 input, else what standard input said, else the environment's DELAY_US; 0 = as fast as flow
// control permits):
//   a request with `input_ids` (token dialect) gets output_ids [1,1,1] and sequence_length [1,1], ids 1000, 1001, ... 1063,
//   or those that standard input gave, over and over;
//   any other (text dialect) gets text_output [1], or with STAMP=1 the text "T<CLOCK_MONOTONIC ns>", and the token
//   dialect's outputs too where it names output_ids among its requested outputs, as an ensemble with such outputs has it;
//   `return_num_output_tokens` adds num_output_tokens [1,1] to text, the tokens of this response;
//   `return_log_probs` adds output_log_probs [1,1,n], which has all tokens so far, and `num_top_log_probs` K adds
//   top_log_probs_ids and top_log_probs [1,1,K] (our own extension of the engine step).
// A request that names `embedding` among its outputs gets embedding [rows,384] and token_count [rows,1] in one response,
// also by ModelInfer.
// A request with `stop` true ends the one that runs under the same id, and is answered by an empty final response.
// Lines on standard input, for requests that begin later but for the last:
//   1000             a number: the delay
//   ids 5 6 7        the ids of the token dialect; without any, 1000 ... 1063 again
//   end              the streams that run end with their next response
// With REPO, ModelConfig, ModelMetadata and RepositoryIndex answer from REPO/<model>/config.pbtxt.
#include <grpcpp/alarm.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>

#include <google/protobuf/text_format.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "grpc_service.pb.h"

using inference::ModelInferRequest;
using inference::ModelStreamInferResponse;

namespace {

const bool kStamp = getenv("STAMP") != nullptr;
std::atomic<double> default_delay_us{getenv("DELAY_US") ? atof(getenv("DELAY_US")) : 0};
grpc::AsyncGenericService service;
std::map<std::string, inference::ModelConfig> models;
const char* const kWords[] = {" the", " quick", " brown", " fox", " jumps", " over", " a", " lazy", " dog", ".", " Hello", " \"w\""};
const float kNumbers[] = {0.125f, -0.03172f, 0.0471f, -0.5113f, 0.20018f, 0.0003f, -0.0991f};
constexpr int32_t kWordCount = 12, kFirstId = 1000, kIdCount = 64;
std::vector<grpc::Slice> text_tokens;
grpc::Slice final_response;

// What the token dialect answers; replaced as a whole, by the thread that reads standard input.
struct Ids { std::vector<int32_t> ids; std::vector<grpc::Slice> responses; };
std::shared_ptr<const Ids> answer_ids;
std::atomic<int> ends{0};  // how often "end" was said

ModelStreamInferResponse Envelope(const std::string& model, bool final) {
  ModelStreamInferResponse r;
  auto* infer = r.mutable_infer_response();
  infer->set_model_name(model);
  infer->set_model_version("1");
  (*infer->mutable_parameters())["triton_final_response"].set_bool_param(final);
  return r;
}

void AddOutput(ModelStreamInferResponse* r, const char* name, const char* dtype, std::vector<int64_t> shape, std::string raw) {
  auto* out = r->mutable_infer_response()->add_outputs();
  out->set_name(name);
  out->set_datatype(dtype);
  for (auto d : shape) out->add_shape(d);
  r->mutable_infer_response()->add_raw_output_contents(std::move(raw));
}

std::string Raw(int32_t v) { return std::string(reinterpret_cast<const char*>(&v), 4); }

std::string Raw(float v) { return std::string(reinterpret_cast<const char*>(&v), 4); }

void AddText(ModelStreamInferResponse* r, const std::string& text) {
  AddOutput(r, "text_output", "BYTES", {1}, Raw(static_cast<int32_t>(text.size())) + text);
}

void AddId(ModelStreamInferResponse* r, int32_t id) {
  AddOutput(r, "output_ids", "INT32", {1, 1, 1}, Raw(id));
  AddOutput(r, "sequence_length", "INT32", {1, 1}, Raw(1));
}

grpc::Slice TextToken(const std::string& text) {
  auto r = Envelope("ensemble", false);
  AddText(&r, text);
  return grpc::Slice(r.SerializeAsString());
}

grpc::Slice IdToken(int32_t id) {
  auto r = Envelope("tensorrt_llm", false);
  AddId(&r, id);
  return grpc::Slice(r.SerializeAsString());
}

void AnswerWith(std::vector<int32_t> ids) {
  if (ids.empty()) for (int32_t i = 0; i < kIdCount; i++) ids.push_back(kFirstId + i);
  auto made = std::make_shared<Ids>();
  for (auto id : ids) made->responses.push_back(IdToken(id));
  made->ids = std::move(ids);
  std::atomic_store(&answer_ids, std::shared_ptr<const Ids>(made));
}

void ReadCommands() {
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string command;
    words >> command;
    if (command == "end") {
      ends++;
    } else if (command == "ids") {
      std::vector<int32_t> ids;
      for (int32_t id; words >> id;) ids.push_back(id);
      AnswerWith(std::move(ids));
    } else if (!command.empty()) {
      default_delay_us = atof(command.c_str());
    }
  }
}

std::string Stamp() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return "T" + std::to_string(t.tv_sec * 1000000000L + t.tv_nsec);
}

void LoadRepository(const std::string& dir) {
  for (auto& entry : std::filesystem::directory_iterator(dir)) {
    std::ifstream file(entry.path() / "config.pbtxt");
    if (!file) continue;
    std::stringstream text;
    text << file.rdbuf();
    inference::ModelConfig config;
    if (!google::protobuf::TextFormat::ParseFromString(text.str(), &config)) {
      fprintf(stderr, "cannot parse %s\n", entry.path().c_str());
      exit(1);
    }
    if (config.name().empty()) config.set_name(entry.path().filename());
    models[config.name()] = config;
  }
}

// "TYPE_STRING" -> "BYTES", "TYPE_INT32" -> "INT32"
std::string WireType(inference::DataType t) {
  auto name = inference::DataType_Name(t).substr(5);
  return name == "STRING" ? "BYTES" : name;
}

template <typename Tensor>
void Describe(inference::ModelMetadataResponse::TensorMetadata* out, const Tensor& tensor, bool batched) {
  out->set_name(tensor.name());
  out->set_datatype(WireType(tensor.data_type()));
  if (batched) out->add_shape(-1);
  for (auto d : tensor.dims()) out->add_shape(d);
}

// The vectors of so many rows.
void Embed(inference::ModelInferResponse* r, int64_t rows) {
  constexpr int64_t width = 384;
  std::string values, counts;
  for (int64_t i = 0; i < rows * width; i++) values += std::string(reinterpret_cast<const char*>(&kNumbers[i % 7]), 4);
  for (int64_t i = 0; i < rows; i++) counts += std::string("\x07\0\0\0", 4);
  auto add = [&](const char* name, const char* dtype, int64_t columns, std::string raw) {
    auto* out = r->add_outputs();
    out->set_name(name);
    out->set_datatype(dtype);
    out->add_shape(rows);
    out->add_shape(columns);
    r->add_raw_output_contents(std::move(raw));
  };
  add("embedding", "FP32", width, std::move(values));
  add("token_count", "INT32", 1, std::move(counts));
}

// The answer to a unary call; false where there is none (an unknown model or method).
bool Unary(const std::string& method, const std::string& body, std::string* answer) {
  auto is = [&](const char* name) { return method.find(name) != std::string::npos; };
  if (is("ServerLive") || is("ServerReady") || is("ModelReady")) return *answer = "\x08\x01", true;
  if (is("ServerMetadata")) {
    inference::ServerMetadataResponse r;
    r.set_name("synthetic-triton");
    r.set_version("2.51.0");
    return r.SerializeToString(answer);
  }
  if (is("RepositoryIndex")) {
    inference::RepositoryIndexResponse r;
    for (auto& [name, config] : models) {
      auto* m = r.add_models();
      m->set_name(name);
      m->set_version("1");
      m->set_state("READY");
    }
    return r.SerializeToString(answer);
  }
  if (is("ModelInfer")) {
    ModelInferRequest asked;
    inference::ModelInferResponse r;
    asked.ParseFromString(body);
    r.set_model_name(asked.model_name());
    r.set_id(asked.id());
    Embed(&r, asked.inputs_size() ? asked.inputs(0).shape(0) : 1);
    return r.SerializeToString(answer);
  }
  inference::ModelConfigRequest request;  // ModelMetadataRequest has the same fields
  request.ParseFromString(body);
  auto found = models.find(request.name());
  if (found == models.end()) return false;
  const auto& config = found->second;
  if (is("ModelConfig")) {
    inference::ModelConfigResponse r;
    *r.mutable_config() = config;
    return r.SerializeToString(answer);
  }
  if (is("ModelMetadata")) {
    inference::ModelMetadataResponse r;
    r.set_name(config.name());
    r.add_versions("1");
    r.set_platform(config.platform().empty() ? config.backend() : config.platform());
    for (auto& t : config.input()) Describe(r.add_inputs(), t, config.max_batch_size() > 0);
    for (auto& t : config.output()) Describe(r.add_outputs(), t, config.max_batch_size() > 0);
    return r.SerializeToString(answer);
  }
  return false;
}

class Call;
struct Tag { Call* call; int op; };
std::unordered_map<std::string, Call*> running;  // by request id; one thread serves everything

class Call {
 public:
  enum { kNew, kRead, kWrite, kAlarm, kFinish, kDone, kOps };

  explicit Call(grpc::ServerCompletionQueue* queue) : queue_(queue), io_(&context_) {
    for (int op = 0; op < kOps; op++) tags_[op] = {this, op};
    context_.AsyncNotifyWhenDone(&tags_[kDone]);
    service.RequestCall(&context_, &io_, queue_, queue_, &tags_[kNew]);
  }

  void On(int op, bool ok) {
    if (op == kNew) {
      if (!ok) return;
      new Call(queue_);
      pending_++;
      return io_.Read(&request_, &tags_[kRead]);
    }
    if (op == kDone) done_ = true;
    else pending_--;
    switch (op) {
      case kRead: ok ? Start() : Finish(grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "no request")); break;
      case kWrite: ok && !done_ ? Schedule() : Finish(grpc::Status::CANCELLED); break;
      case kAlarm: ok && !done_ ? Write() : Finish(grpc::Status::CANCELLED); break;
      case kDone: if (context_.IsCancelled()) alarm_.Cancel(); break;
    }
    if (done_ && pending_ == 0) delete this;
  }

  ~Call() {
    auto found = running.find(id_);
    if (found != running.end() && found->second == this) running.erase(found);
  }

 private:
  void Start() {
    std::vector<grpc::Slice> slices;
    request_.Dump(&slices);
    std::string body;
    for (auto& s : slices) body.append(reinterpret_cast<const char*>(s.begin()), s.size());
    if (context_.method().find("ModelStreamInfer") == std::string::npos) {
      std::string answer;
      if (!Unary(context_.method(), body, &answer)) return Finish(grpc::Status(grpc::StatusCode::NOT_FOUND, "unknown model or method"));
      grpc::Slice slice(answer);
      return Last(grpc::ByteBuffer(&slice, 1));
    }
    ReadInputs(body);
    if (stop_) {
      auto found = running.find(id_);
      if (found != running.end()) found->second->count_ = 0;
      return Last(grpc::ByteBuffer(&final_response, 1));
    }
    if (rows_) {
      auto r = Envelope("embedding", true);
      Embed(r.mutable_infer_response(), rows_);
      grpc::Slice slice(r.SerializeAsString());
      return Last(grpc::ByteBuffer(&slice, 1));
    }
    if (!id_.empty()) running[id_] = this;
    next_ = std::chrono::system_clock::now();
    Schedule();
  }

  void ReadInputs(const std::string& body) {
    ModelInferRequest request;
    request.ParseFromString(body);
    id_ = request.id();
    delay_us_ = default_delay_us;
    answer_ids_ = std::atomic_load(&answer_ids);
    ends_ = ends;
    for (auto& output : request.outputs()) {
      ids_wanted_ |= output.name() == "output_ids";
      if (output.name() == "embedding") rows_ = request.inputs(0).shape(0);
    }
    int raw = 0;
    for (auto& input : request.inputs()) {
      const std::string* bytes = input.has_contents() || raw >= request.raw_input_contents_size() ? nullptr : &request.raw_input_contents(raw++);
      if (input.name() == "input_ids") tokens_ = &answer_ids_->responses;
      if (input.name() == "max_tokens" || input.name() == "request_output_len") {
        if (bytes) memcpy(&count_, bytes->data(), 4);
        else if (input.contents().int_contents_size()) count_ = input.contents().int_contents(0);
      }
      if (input.name() == "delay_us") {
        float us = 0;
        if (bytes) memcpy(&us, bytes->data(), 4);
        else if (input.contents().fp32_contents_size()) us = input.contents().fp32_contents(0);
        delay_us_ = us;
      }
      if (input.name() == "stop") stop_ = bytes ? !bytes->empty() && bytes->front() : input.contents().bool_contents_size() && input.contents().bool_contents(0);
      if (input.name() == "return_num_output_tokens") counts_ = bytes ? !bytes->empty() && bytes->front() : input.contents().bool_contents_size() && input.contents().bool_contents(0);
      if (input.name() == "return_log_probs") log_probs_ = bytes ? !bytes->empty() && bytes->front() : input.contents().bool_contents_size() && input.contents().bool_contents(0);
      if (input.name() == "num_top_log_probs") {
        if (bytes) memcpy(&top_log_probs_, bytes->data(), 4);
        else if (input.contents().int_contents_size()) top_log_probs_ = input.contents().int_contents(0);
      }
    }
  }

  void Schedule() {
    if (delay_us_ <= 0) return Write();
    next_ += std::chrono::microseconds(static_cast<int64_t>(delay_us_));
    pending_++;
    alarm_.Set(queue_, next_, &tags_[kAlarm]);
  }

  void Write() {
    if (sent_ >= count_ || ends_ != ends) return Last(grpc::ByteBuffer(&final_response, 1));
    const bool text = tokens_ == &text_tokens;
    grpc::Slice made;
    const grpc::Slice* token = &(*tokens_)[sent_ % tokens_->size()];
    if (log_probs_ || (text && (kStamp || ids_wanted_ || counts_))) {
      made = Make(text);
      token = &made;
    }
    sent_++;
    pending_++;
    io_.Write(grpc::ByteBuffer(token, 1), &tags_[kWrite]);
  }

  // A token whose message is not the same for all requests.
  grpc::Slice Make(bool text) const {
    auto r = Envelope(text ? "ensemble" : "tensorrt_llm", false);
    if (text) AddText(&r, kStamp ? Stamp() : kWords[sent_ % kWordCount]);
    const int32_t id = answer_ids_->ids[sent_ % answer_ids_->ids.size()];
    if (!text || ids_wanted_) AddId(&r, id);
    if (text && counts_) AddOutput(&r, "num_output_tokens", "INT32", {1, 1}, Raw(1));
    if (log_probs_) {
      std::string all;
      for (int i = 0; i <= sent_; i++) all += Raw(-0.25f);
      AddOutput(&r, "output_log_probs", "FP32", {1, 1, sent_ + 1}, all);
    }
    if (top_log_probs_ > 0) {
      std::string ids, values;
      for (int i = 0; i < top_log_probs_; i++) ids += Raw(answer_ids_->ids[(sent_ + i) % answer_ids_->ids.size()]), values += Raw(-0.25f - i);
      AddOutput(&r, "top_log_probs_ids", "INT32", {1, 1, top_log_probs_}, ids);
      AddOutput(&r, "top_log_probs", "FP32", {1, 1, top_log_probs_}, values);
    }
    return grpc::Slice(r.SerializeAsString());
  }

  void Last(const grpc::ByteBuffer& message) {
    if (finished_) return;
    finished_ = true;
    pending_++;
    io_.WriteAndFinish(message, grpc::WriteOptions(), grpc::Status::OK, &tags_[kFinish]);
  }

  void Finish(const grpc::Status& status) {
    if (finished_) return;
    finished_ = true;
    pending_++;
    io_.Finish(status, &tags_[kFinish]);
  }

  grpc::ServerCompletionQueue* queue_;
  grpc::GenericServerContext context_;
  grpc::GenericServerAsyncReaderWriter io_;
  grpc::ByteBuffer request_;
  grpc::Alarm alarm_;
  Tag tags_[kOps];
  std::shared_ptr<const Ids> answer_ids_;
  const std::vector<grpc::Slice>* tokens_ = &text_tokens;
  std::chrono::system_clock::time_point next_;
  std::string id_;
  double delay_us_ = 0;
  int64_t rows_ = 0;  // of vectors that it is to answer with
  int32_t count_ = 16, sent_ = 0, top_log_probs_ = 0;
  int ends_ = 0;
  bool stop_ = false, ids_wanted_ = false, log_probs_ = false, counts_ = false;
  int pending_ = 0;
  bool done_ = false, finished_ = false;
};

}  // namespace

int main(int argc, char** argv) {
  const std::string port = argc > 1 ? argv[1] : "19001";
  if (argc > 2) LoadRepository(argv[2]);
  for (auto word : kWords) text_tokens.push_back(TextToken(word));
  AnswerWith({});
  final_response = grpc::Slice(Envelope("ensemble", true).SerializeAsString());

  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:" + port, grpc::InsecureServerCredentials());
  builder.RegisterAsyncGenericService(&service);
  builder.SetMaxReceiveMessageSize(-1);
  auto queue = builder.AddCompletionQueue();
  auto server = builder.BuildAndStart();
  if (!server) return 1;
  fprintf(stderr, "synthetic Triton on 127.0.0.1:%s, %zu models, %zu B a text token, %zu B an id token\n", port.c_str(), models.size(), text_tokens[0].size(), answer_ids->responses[0].size());
  std::thread(ReadCommands).detach();
  for (int i = 0; i < 8; i++) new Call(queue.get());
  void* tag;
  bool ok;
  while (queue->Next(&tag, &ok)) static_cast<Tag*>(tag)->call->On(static_cast<Tag*>(tag)->op, ok);
}
