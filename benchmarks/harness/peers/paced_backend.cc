// A backend of Triton without inference: each request gets max_tokens responses of one word, at the pace that standard
// input sets, as synth.cc has it. For front ends that run in Triton's own process. triton_front_end.py builds it.
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <mutex>
#include <queue>
#include <string>
#include <thread>
#include <vector>

#include "triton/core/tritonbackend.h"

namespace {

using Clock = std::chrono::steady_clock;
const char* const kWords[] = {" the", " quick", " brown", " fox", " jumps", " over", " a", " lazy", " dog", "."};

struct Answer {
  Clock::time_point due;
  TRITONBACKEND_ResponseFactory* factory;
  int sent;
  int count;
  bool operator<(const Answer& other) const { return due > other.due; }  // the earliest on top
};

std::atomic<long> delay_us{0};
// Never destroyed: the threads wait in them when the process ends.
std::mutex& mutex = *new std::mutex;
std::condition_variable& changed = *new std::condition_variable;
std::priority_queue<Answer>& answers = *new std::priority_queue<Answer>;

bool Failed(TRITONSERVER_Error* error) {
  if (error == nullptr) return false;
  std::cerr << "paced backend: " << TRITONSERVER_ErrorMessage(error) << std::endl;
  TRITONSERVER_ErrorDelete(error);
  return true;
}

void* Output(TRITONBACKEND_Response* response, const char* name, TRITONSERVER_DataType type, size_t size) {
  TRITONBACKEND_Output* output = nullptr;
  const int64_t shape[] = {1, 1};
  void* buffer = nullptr;
  TRITONSERVER_MemoryType memory = TRITONSERVER_MEMORY_CPU;
  int64_t id = 0;
  if (Failed(TRITONBACKEND_ResponseOutput(response, &output, name, type, shape, 2)) ||
      Failed(TRITONBACKEND_OutputBuffer(output, &buffer, size, &memory, &id))) {
    return nullptr;
  }
  return buffer;
}

void Number(TRITONBACKEND_Response* response, const char* name, int value) {
  if (void* buffer = Output(response, name, TRITONSERVER_TYPE_INT32, sizeof value)) std::memcpy(buffer, &value, sizeof value);
}

// Sends the next word; false after the last one.
bool Send(Answer& answer) {
  TRITONBACKEND_Response* response = nullptr;
  if (Failed(TRITONBACKEND_ResponseNewFromFactory(&response, answer.factory))) return false;
  const std::string word = kWords[answer.sent % 10];
  const uint32_t size = word.size();
  if (char* buffer = static_cast<char*>(Output(response, "text_output", TRITONSERVER_TYPE_BYTES, size + 4))) {
    std::memcpy(buffer, &size, 4);
    std::memcpy(buffer + 4, word.data(), size);
  }
  answer.sent += 1;
  Number(response, "num_input_tokens", 1);
  Number(response, "num_output_tokens", 1);  // the front end adds them up
  const bool last = answer.sent == answer.count;
  Failed(TRITONBACKEND_ResponseSend(response, last ? TRITONSERVER_RESPONSE_COMPLETE_FINAL : 0, nullptr));
  if (last) Failed(TRITONBACKEND_ResponseFactoryDelete(answer.factory));
  return !last;
}

// Sends what is due; at full speed each answer in turn gets a word.
void Work() {
  std::unique_lock<std::mutex> lock(mutex);
  while (true) {
    if (answers.empty()) {
      changed.wait(lock);
      continue;
    }
    Answer next = answers.top();
    if (next.due > Clock::now()) {
      changed.wait_until(lock, next.due);
      continue;
    }
    answers.pop();
    lock.unlock();
    const bool more = Send(next);
    const long delay = delay_us;
    next.due = delay ? next.due + std::chrono::microseconds(delay) : Clock::now();
    lock.lock();
    if (more) answers.push(next);
  }
}

// By read(): a thread that waits in a stream keeps it locked, and the process could not end.
void ReadPace() {
  char line[32];
  for (ssize_t size; (size = read(STDIN_FILENO, line, sizeof line - 1)) > 0;) {
    line[size] = 0;
    delay_us = atol(line);
  }
}

int MaxTokens(TRITONBACKEND_Request* request) {
  TRITONBACKEND_Input* input = nullptr;
  const void* buffer = nullptr;
  uint64_t size = 0;
  TRITONSERVER_MemoryType memory = TRITONSERVER_MEMORY_CPU;
  int64_t id = 0;
  int count = 16;
  if (!Failed(TRITONBACKEND_RequestInput(request, "max_tokens", &input)) &&
      !Failed(TRITONBACKEND_InputBuffer(input, 0, &buffer, &size, &memory, &id)) && size == sizeof count) {
    std::memcpy(&count, buffer, sizeof count);
  }
  return count;
}

}  // namespace

extern "C" {

TRITONSERVER_Error* TRITONBACKEND_Initialize(TRITONBACKEND_Backend*) {
  std::thread(Work).detach();
  std::thread(ReadPace).detach();
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceExecute(
    TRITONBACKEND_ModelInstance*, TRITONBACKEND_Request** requests, const uint32_t count) {
  for (uint32_t index = 0; index < count; ++index) {
    TRITONBACKEND_ResponseFactory* factory = nullptr;
    if (!Failed(TRITONBACKEND_ResponseFactoryNew(&factory, requests[index]))) {
      const auto due = Clock::now() + std::chrono::microseconds(delay_us);
      std::lock_guard<std::mutex> lock(mutex);
      answers.push(Answer{due, factory, 0, MaxTokens(requests[index])});
      changed.notify_one();
    }
    Failed(TRITONBACKEND_RequestRelease(requests[index], TRITONSERVER_REQUEST_RELEASE_ALL));
  }
  return nullptr;
}

}  // extern "C"
