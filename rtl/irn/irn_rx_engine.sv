// IRN's receiver: receiveData with the contexts of all queue pairs (SIGCOMM'18, section 6.2; row I-R23).
//
// A packet is accepted each cycle, unless one of its queue pair is in the pipeline, whose context it needs: then
// `ready_o` is low. So a queue pair has a packet every four cycles, and four or more in turn have one every cycle. A
// set-up takes the way of a packet and writes the first context of a queue pair, whose first packet is `psn_i`; it has
// no answer.
//
// Stages: context read; class and search; counts; next context, which is written, and answer.
// Latency: four cycles; initiation interval 1 over different queue pairs.
module irn_rx_engine #(
    parameter int unsigned W = 128,
    parameter int unsigned QPS = 1024
) (
    input  logic                     clk,
    input  logic                     rst_n,
    input  logic                     valid_i,
    output logic                     ready_o,
    input  logic                     is_set_up_i,
    input  logic [$clog2(QPS)-1:0]   qp_i,
    input  logic [irn_pkg::ID_W-1:0] psn_i,
    input  logic [1:0]               arrival_i,
    // Answers, as `irn_receive_data`; the cumulative id is that of the next packet in order.
    output logic                     valid_o,
    output logic [$clog2(QPS)-1:0]   qp_o,
    output logic [1:0]               answer_o,
    output logic [irn_pkg::ID_W-1:0] cumulative_o,
    output logic [irn_pkg::ID_W-1:0] selective_o,
    output logic [irn_pkg::ID_W-1:0] msn_o,
    output logic [$clog2(W):0]       completions_o,
    output logic                     place_o
);
  localparam int unsigned ID_W = irn_pkg::ID_W;
  localparam int unsigned QP_W = $clog2(QPS);

  typedef struct packed {
    logic [ID_W-1:0] expected;
    logic [ID_W-1:0] msn;
    logic [W-1:0]    high;
    logic [W-1:0]    low;
  } context_t;

  // What the stages 1 to 3 work on. The core delays the packet itself.
  logic            valid_1_q, valid_2_q, valid_3_q;
  logic            is_set_up_1_q, is_set_up_2_q, is_set_up_3_q;
  logic [QP_W-1:0] qp_1_q, qp_2_q, qp_3_q;
  logic [ID_W-1:0] psn_1_q, psn_2_q, psn_3_q;
  logic [1:0]      arrival_1_q;
  logic            is_accepted;
  context_t        stored, updated, written;
  logic [1:0]      answer;
  logic [ID_W-1:0] selective;
  logic [$clog2(W):0] completions;
  logic            place;

  assign ready_o = !(valid_1_q && qp_1_q == qp_i) && !(valid_2_q && qp_2_q == qp_i) && !(valid_3_q && qp_3_q == qp_i);
  assign is_accepted = valid_i && ready_o;

  ram_1w1r #(.W($bits(stored)), .DEPTH(QPS)) i_contexts (
      .clk(clk),
      .write_i(valid_3_q),
      .write_address_i(qp_3_q),
      .write_data_i(written),
      .read_address_i(qp_i),
      .read_data_o(stored)
  );

  irn_receive_data #(.W(W), .PIPE(1)) i_core (
      .clk(clk),
      .psn_i(psn_1_q),
      .arrival_i(arrival_1_q),
      .expected_i(stored.expected),
      .msn_i(stored.msn),
      .high_i(stored.high),
      .low_i(stored.low),
      .expected_o(updated.expected),
      .msn_o(updated.msn),
      .high_o(updated.high),
      .low_o(updated.low),
      .answer_o(answer),
      .selective_o(selective),
      .completions_o(completions),
      .place_o(place)
  );

  always_comb begin
    written = updated;
    if (is_set_up_3_q) begin
      written = '0;
      written.expected = psn_3_q;
    end
  end

  always_ff @(posedge clk) begin
    if (!rst_n) begin
      valid_1_q <= 1'b0;
      valid_2_q <= 1'b0;
      valid_3_q <= 1'b0;
      valid_o <= 1'b0;
    end else begin
      valid_1_q <= is_accepted;
      valid_2_q <= valid_1_q;
      valid_3_q <= valid_2_q;
      valid_o <= valid_3_q && !is_set_up_3_q;
    end
    qp_1_q <= qp_i;
    qp_2_q <= qp_1_q;
    qp_3_q <= qp_2_q;
    is_set_up_1_q <= is_set_up_i;
    is_set_up_2_q <= is_set_up_1_q;
    is_set_up_3_q <= is_set_up_2_q;
    psn_1_q <= psn_i;
    psn_2_q <= psn_1_q;
    psn_3_q <= psn_2_q;
    arrival_1_q <= arrival_i;
    qp_o <= qp_3_q;
    answer_o <= answer;
    cumulative_o <= updated.expected;
    selective_o <= selective;
    msn_o <= updated.msn;
    completions_o <= completions;
    place_o <= place;
  end
endmodule
