// The limit that a gateway's added delay is measured against: a C++ client that reads ModelStreamInfer directly.
//
//   direct PORT STREAMS ROUNDS TOKENS
//
// STREAMS requests of the text dialect at a time on one channel, ROUNDS times each. The server runs with STAMP=1; the
// delay of a token is from its stamp to the completion of its read here. One line, in the words of ssecli. Environment:
// STAGGER_US = time between the starts of the streams (0: all at once).
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <sys/resource.h>
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "grpc_service.pb.h"

namespace {

constexpr char kMethod[] = "/inference.GRPCInferenceService/ModelStreamInfer";
std::vector<float> first_us, token_us, end_us;
long tokens = 0;
int failed = 0;

long NowNs() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000L + t.tv_nsec;
}

double CpuUs() {
  rusage r;
  getrusage(RUSAGE_SELF, &r);
  return (r.ru_utime.tv_sec + r.ru_stime.tv_sec) * 1e6 + r.ru_utime.tv_usec + r.ru_stime.tv_usec;
}

double Percentile(std::vector<float>& values, double share) {
  if (values.empty()) return 0;
  const size_t k = std::min(values.size() - 1, static_cast<size_t>(share * values.size()));
  std::nth_element(values.begin(), values.begin() + k, values.end());
  return values[k];
}

std::string Raw(int32_t v) { return std::string(reinterpret_cast<const char*>(&v), 4); }

grpc::ByteBuffer Request(int32_t count) {
  inference::ModelInferRequest r;
  r.set_model_name("ensemble");
  auto add = [&](const char* name, const char* dtype, std::string raw) {
    auto* input = r.add_inputs();
    input->set_name(name);
    input->set_datatype(dtype);
    input->add_shape(1);
    input->add_shape(1);
    r.add_raw_input_contents(std::move(raw));
  };
  const std::string prompt = "Hello";
  add("text_input", "BYTES", Raw(prompt.size()) + prompt);
  add("max_tokens", "INT32", Raw(count));
  add("stream", "BOOL", std::string(1, '\1'));
  grpc::Slice slice(r.SerializeAsString());
  return grpc::ByteBuffer(&slice, 1);
}

// One stream at a time; each operation's tag is the object, its kind follows from what was asked last.
class Stream {
 public:
  // The times of the first round count from `due`.
  Stream(grpc::GenericStub* stub, grpc::CompletionQueue* queue, const grpc::ByteBuffer& request, int rounds, long due)
      : stub_(stub), queue_(queue), request_(request), left_(rounds) {
    Start();
    begun_ = due;
  }

  // False when this was the last operation of the last round.
  bool On(bool ok) {
    switch (step_) {
      case kStart:
        step_ = kWrite;
        call_->WriteLast(request_, grpc::WriteOptions(), this);
        return true;
      case kWrite:
        step_ = kRead;
        call_->Read(&answer_, this);
        return true;
      case kRead:
        if (!ok) {
          step_ = kFinish;
          call_->Finish(&status_, this);
          return true;
        }
        Count();
        call_->Read(&answer_, this);
        return true;
      case kFinish:
        if (!status_.ok()) failed++;
        end_us.push_back((NowNs() - begun_) / 1e3);
        if (--left_ == 0) return false;
        Start();
        return true;
    }
    return false;
  }

 private:
  void Start() {
    step_ = kStart;
    seen_ = 0;
    context_ = std::make_unique<grpc::ClientContext>();
    begun_ = NowNs();
    call_ = stub_->PrepareCall(context_.get(), kMethod, queue_);
    call_->StartCall(this);
  }

  void Count() {
    std::vector<grpc::Slice> slices;
    answer_.Dump(&slices);
    std::string body;
    for (auto& s : slices) body.append(reinterpret_cast<const char*>(s.begin()), s.size());
    inference::ModelStreamInferResponse response;
    response.ParseFromString(body);
    if (response.infer_response().raw_output_contents().empty()) return;
    const long now = NowNs();
    const std::string& text = response.infer_response().raw_output_contents(0);
    if (text.size() > 5 && text[4] == 'T') token_us.push_back((now - atol(text.c_str() + 5)) / 1e3);
    if (!seen_++) first_us.push_back((now - begun_) / 1e3);
    tokens++;
  }

  enum { kStart, kWrite, kRead, kFinish } step_ = kStart;
  grpc::GenericStub* stub_;
  grpc::CompletionQueue* queue_;
  const grpc::ByteBuffer& request_;
  std::unique_ptr<grpc::ClientContext> context_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call_;
  grpc::ByteBuffer answer_;
  grpc::Status status_;
  int left_, seen_ = 0;
  long begun_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 5) return 2;
  const int count = atoi(argv[2]), rounds = atoi(argv[3]);
  grpc::GenericStub stub(grpc::CreateChannel("127.0.0.1:" + std::string(argv[1]), grpc::InsecureChannelCredentials()));
  const grpc::ByteBuffer request = Request(atoi(argv[4]));
  grpc::CompletionQueue queue;
  const long begun = NowNs();
  const double cpu = CpuUs();
  const double stagger_ns = getenv("STAGGER_US") ? atof(getenv("STAGGER_US")) * 1e3 : 0;
  std::vector<std::unique_ptr<Stream>> streams;
  void* tag;
  bool ok;
  for (int live = 0, started = 0; live || started < count;) {
    while (started < count && NowNs() >= begun + started * stagger_ns) {
      const long due = stagger_ns ? begun + static_cast<long>(started * stagger_ns) : NowNs();
      streams.push_back(std::make_unique<Stream>(&stub, &queue, request, rounds, due));
      started++, live++;
    }
    const auto due = started < count ? std::chrono::system_clock::now() + std::chrono::microseconds(200)
                                     : std::chrono::system_clock::time_point::max();
    if (queue.AsyncNext(&tag, &ok, due) == grpc::CompletionQueue::GOT_EVENT) live -= !static_cast<Stream*>(tag)->On(ok);
  }
  const double wall = (NowNs() - begun) / 1e9;
  printf("streams=%d events=%ld done=%d bad=%d wall=%.2f ev/s=%.0f gen_us/ev=%.1f ttft_us p50=%.0f p90=%.0f p99=%.0f tok_us p50=%.0f p90=%.0f p99=%.0f end_us p50=%.0f p90=%.0f p99=%.0f\n", count, tokens,
         count * rounds - failed, failed, wall, tokens / wall, (CpuUs() - cpu) / std::max(1L, tokens), Percentile(first_us, .5), Percentile(first_us, .9), Percentile(first_us, .99),
         Percentile(token_us, .5), Percentile(token_us, .9), Percentile(token_us, .99),
         Percentile(end_us, .5), Percentile(end_us, .9), Percentile(end_us, .99));
}
